"""chat.*: posts, edits, deletions and ephemeral posts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.fakes.slack import rules
from tests.fakes.slack.records import APP, BOT, BOT_USER, Channel, Ephemeral, Json, Message, Stream
from tests.fakes.slack.rules import Refusal
from tests.fakes.slack.web import Args, method

if TYPE_CHECKING:
    from tests.fakes.slack.server import FakeSlack

_TS = re.compile(r"\d{10}\.\d{6}")


def place(slack: FakeSlack, id: str) -> Channel:
    """The channel to write to, or the refusal."""
    found = slack.channels.get(id)
    if found is None and id in slack.users:
        found = next((channel for channel in slack.channels.values() if channel.user == id), None)
    if found is None or (not found.member and found.kind != "public"):
        raise Refusal("channel_not_found")
    if found.archived:
        raise Refusal("is_archived")
    if not found.member:
        raise Refusal("not_in_channel")
    return found


def own(slack: FakeSlack, args: Args, refused: str) -> Message:
    """The bot's own message named by channel and ts."""
    channel = slack.channels.get(args.need("channel"))
    if channel is None or (not channel.member and channel.kind != "public"):
        raise Refusal("channel_not_found")
    message = channel.messages.get(args.need("ts"))
    if message is None or message.deleted:
        raise Refusal("message_not_found")
    if not message.ours:
        raise Refusal(refused)
    return message


def content(args: Args) -> tuple[str, list[Json] | None]:
    """Text and blocks of a post, checked."""
    text = args.text("text")
    blocks = args.json("blocks", "invalid_blocks_format")
    if blocks is not None:
        rules.check_blocks(blocks)
    if not text.strip() and not blocks:
        raise Refusal("no_text")
    return text, blocks


def thread(args: Args) -> str | None:
    ts = args.get("thread_ts")
    if ts in (None, ""):
        return None
    if not _TS.fullmatch(str(ts)):
        raise Refusal("invalid_thread_ts")
    return str(ts)


@method("chat.postMessage", "chat:write")
def post_message(slack: FakeSlack, args: Args) -> Json:
    channel = place(slack, args.need("channel"))
    text, blocks = content(args)
    root = thread(args)
    metadata = args.json("metadata", "invalid_metadata_format")
    rules.check_metadata(metadata)
    warned: Json = {}
    if len(text) > rules.TEXT:
        text = text[: rules.TEXT]
        warned = {"warning": "message_truncated", "response_metadata": {"warnings": ["message_truncated"]}}
    message = Message(
        channel.id,
        slack.next_ts(),
        text,
        user=BOT_USER,
        bot_id=BOT,
        app_id=APP,
        thread_ts=root,
        blocks=blocks,
        metadata=metadata,
        unfurl_links=args.flag("unfurl_links"),
        unfurl_media=args.flag("unfurl_media"),
    )
    off = rules.set_off(text, blocks or (), parse=args.text("parse"))
    message.pings += off.pings
    if message.unfurl_links is not False or message.unfurl_media is not False:
        message.unfurls += off.urls
    slack.put(message)
    slack.echo(message)
    return {"channel": channel.id, "ts": message.ts, "message": message.view(metadata=True)} | warned


@method("chat.postEphemeral", "chat:write")
def post_ephemeral(slack: FakeSlack, args: Args) -> Json:
    channel = place(slack, args.need("channel"))
    user = args.need("user")
    if user not in slack.users:
        raise Refusal("user_not_in_channel")
    text, blocks = content(args)
    off = rules.set_off(text, blocks or (), parse=args.text("parse"))
    quiet = args.flag("unfurl_links") is False and args.flag("unfurl_media") is False
    urls = [] if quiet else off.urls
    post = Ephemeral(channel.id, user, slack.next_ts(), thread(args), text, blocks, off.pings, urls)
    slack.ephemerals.append(post)
    return {"message_ts": post.ts}


@method("chat.update", "chat:write")
def update(slack: FakeSlack, args: Args) -> Json:
    message = own(slack, args, "cant_update_message")
    place(slack, message.channel)
    if streaming(slack, message):
        raise Refusal("streaming_state_conflict")
    if len(args.text("text")) > rules.UPDATE_TEXT:
        raise Refusal("msg_too_long")
    text, blocks = content(args)
    metadata = args.json("metadata", "invalid_metadata_format")
    rules.check_metadata(metadata or None)
    before = message.view()
    message.text = text or message.text
    # text without blocks removes the blocks; neither changes what is not given
    message.blocks = (blocks or None) if blocks is not None or text else message.blocks
    message.metadata = (metadata or None) if metadata is not None else message.metadata
    if blocks is None:
        message.edited = {"user": BOT_USER, "ts": slack.next_ts()}
    changed(slack, message, before, parse=args.text("parse") or "client")
    return {"channel": message.channel, "ts": message.ts, "text": message.text, "message": message.view()}


def changed(slack: FakeSlack, message: Message, before: Json, *, parse: str = "none") -> None:
    """A message of ours has another content: no unfurl switch holds here."""
    fires(message, rules.set_off(message.text, message.blocks or (), parse=parse))
    message.texts.append(message.text)
    slack.changed()
    slack.echo_change(message, before)


def fires(message: Message, off: rules.SetOff) -> None:
    """Note what a message that is already there sets off now, and has not before."""
    message.pings += [ping for ping in off.pings if ping not in message.pings]
    message.unfurls += [url for url in off.urls if url not in message.unfurls]


@method("chat.delete", "chat:write")
def delete(slack: FakeSlack, args: Args) -> Json:
    message = own(slack, args, "cant_delete_message")
    message.deleted = True
    slack.echo_delete(message)
    return {"channel": message.channel, "ts": message.ts}


def streaming(slack: FakeSlack, message: Message) -> Stream | None:
    """Its stream, if it still runs: five minutes from the start at most, even if it is busy."""
    stream = message.stream
    if stream is None or stream.state != "streaming":
        return None
    return stream if slack.clock() - stream.started < slack.stream_seconds else None
