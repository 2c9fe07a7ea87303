"""auth.test, conversations.*, users.*, bots.info, reactions.*: what a bot may look at, and react to."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from tests.fakes.slack.records import BOT, BOT_USER, TEAM, Channel, Json, Message
from tests.fakes.slack.rules import Refusal
from tests.fakes.slack.web import Args, method, missing

if TYPE_CHECKING:
    from tests.fakes.slack.server import FakeSlack

_FAMILY = {"public": "channels", "private": "groups", "im": "im", "mpim": "mpim"}


@method("auth.test")
def auth_test(slack: FakeSlack, args: Args) -> Json:
    return {
        "url": f"{slack.url}/",
        "team": "Fake",
        "user": "threadfast",
        "team_id": TEAM,
        "user_id": BOT_USER,
        "bot_id": BOT,
        "is_enterprise_install": False,
    }


def _needs(slack: FakeSlack, kind: str, right: str) -> None:
    if (scope := f"{_FAMILY[kind]}:{right}") not in slack.scopes:
        raise missing(slack, scope)


def _seen(slack: FakeSlack, id: str) -> Channel:
    channel = slack.channels.get(id)
    if channel is None or (not channel.member and channel.kind != "public"):
        raise Refusal("channel_not_found")
    return channel


def _readable(slack: FakeSlack, id: str) -> Channel:
    channel = _seen(slack, id)
    _needs(slack, channel.kind, "history")
    if not channel.member:
        raise Refusal("not_in_channel")
    return channel


@method("conversations.history")
def history(slack: FakeSlack, args: Args) -> Json:
    channel = _readable(slack, args.need("channel"))
    shown = [m for m in reversed(channel.messages.values()) if m.in_channel and not m.deleted]
    shown = [m for m in shown if _within(m.ts, args)]
    page, cursor = _page(shown, args, 100)
    return _messages(slack, page, args) | cursor


@method("conversations.replies")
def replies(slack: FakeSlack, args: Args) -> Json:
    channel = _readable(slack, args.need("channel"))
    asked = channel.messages.get(args.need("ts"))
    if asked is None:
        raise Refusal("thread_not_found")
    if asked.root != asked.ts:
        return _messages(slack, [asked], args) | {"has_more": False}
    root = asked
    if root.deleted and not channel.replies.get(root.ts):
        raise Refusal("thread_not_found")
    rest = [m for m in channel.thread(root.ts) if m is not root and _within(m.ts, args)]
    page, cursor = _page(rest, args, 1000)
    # the root comes first on the first page, whatever the bounds say
    return _messages(slack, page if args.get("cursor") else [root, *page], args) | cursor


def _within(ts: str, args: Args) -> bool:
    oldest, latest = args.text("oldest") or "0", args.text("latest") or "9999999999.999999"
    if args.flag("inclusive"):
        return float(oldest) <= float(ts) <= float(latest)
    return float(oldest) < float(ts) < float(latest)


def _page(messages: list[Message], args: Args, default: int) -> tuple[list[Message], Json]:
    limit = args.number("limit", default)
    if not 1 <= limit <= 1000:
        raise Refusal("invalid_limit")
    start = 0
    if cursor := args.text("cursor"):
        try:
            last = base64.b64decode(cursor, validate=True).decode().removeprefix("next_ts:")
            start = next(place for place, m in enumerate(messages) if m.ts == last)
        except (ValueError, StopIteration):
            raise Refusal("invalid_cursor") from None
    page, rest = messages[start : start + limit], messages[start + limit :]
    more: Json = {"has_more": bool(rest)}
    if rest:
        following = base64.b64encode(f"next_ts:{rest[0].ts}".encode()).decode()
        more["response_metadata"] = {"next_cursor": following}
    return page, more


def _messages(slack: FakeSlack, page: list[Message], args: Args) -> Json:
    return {"messages": [_view(slack, message, bool(args.flag("include_all_metadata"))) for message in page]}


def _view(slack: FakeSlack, message: Message, metadata: bool) -> Json:
    stamps = slack.channels[message.channel].replies.get(message.ts, ())
    answers = [slack.channels[message.channel].messages[ts] for ts in stamps]
    answers = [answer for answer in answers if not answer.deleted]
    if message.deleted:
        shown = {"type": "message", "subtype": "tombstone", "ts": message.ts, "hidden": True}
        shown |= {"text": "This message was deleted.", "user": "USLACKBOT"}
    else:
        shown = message.view(metadata=metadata)
    if answers:
        shown |= {"thread_ts": message.ts, "reply_count": len(answers), "latest_reply": answers[-1].ts}
        shown |= {"reply_users": list({answer.user or answer.bot_id: 0 for answer in answers})}
    return shown


@method("users.conversations")
def users_conversations(slack: FakeSlack, args: Args) -> Json:
    return _channels(slack, [c for c in slack.channels.values() if c.member], args)


def _channels(slack: FakeSlack, channels: list[Channel], args: Args) -> Json:
    asked = (args.text("types") or "public_channel").replace(" ", "").split(",")
    kinds = {kind.removesuffix("_channel") for kind in asked}
    if kinds - _FAMILY.keys():
        raise Refusal("invalid_types")
    for kind in sorted(kinds):
        _needs(slack, kind, "read")
    shown = [c for c in channels if c.kind in kinds and not (args.flag("exclude_archived") and c.archived)]
    limit, start = args.number("limit", 100), args.number("cursor", 0) if args.get("cursor") else 0
    following = str(start + limit) if start + limit < len(shown) else ""
    page = [channel.view() for channel in shown[start : start + limit]]
    return {"channels": page, "response_metadata": {"next_cursor": following}}


@method("users.info", "users:read")
def user_info(slack: FakeSlack, args: Args) -> Json:
    found = slack.users.get(args.need("user"))
    if found is None:
        raise Refusal("user_not_found")
    return {"user": found.view()}


@method("usergroups.list", "usergroups:read")
def usergroups(slack: FakeSlack, _: Args) -> Json:
    return {"usergroups": [{"id": group, "handle": name} for group, name in slack.groups.items()]}


@method("assistant.search.context", "search:read.public")
def search(slack: FakeSlack, args: Args) -> Json:
    """What a person may read of public channels: only with the token that came with their message."""
    if args.need("action_token") not in slack.action_tokens:
        raise Refusal("invalid_action_token")
    found = [
        {
            "author_user_id": message.user or message.bot_id,
            "author_name": slack.users[message.user].name if message.user in slack.users else "",
            "team_id": TEAM,
            "channel_id": channel.id,
            "channel_name": channel.name,
            "message_ts": message.ts,
            "content": message.text,
            "is_author_bot": bool(message.bot_id),
            "permalink": f"{slack.url}/archives/{channel.id}/p{message.ts.replace('.', '')}",
        }
        for channel in slack.channels.values()
        for message in channel.messages.values()
        if channel.kind == "public" and args.need("query").lower() in message.text.lower()
    ]
    return {"results": {"messages": found[: args.number("limit", 20)]}}


@method("conversations.info")
def conversation_info(slack: FakeSlack, args: Args) -> Json:
    channel = _seen(slack, args.need("channel"))
    _needs(slack, channel.kind, "read")
    return {"channel": channel.view()}


@method("files.info", "files:read")
def file_info(slack: FakeSlack, args: Args) -> Json:
    found = slack.files.get(args.need("file"))
    if found is None:
        raise Refusal("file_not_found")
    return {"file": found.info(), "comments": [], "content": ""}


@method("bots.info", "users:read")
def bot_info(slack: FakeSlack, args: Args) -> Json:
    if args.get("bot") != BOT:
        raise Refusal("bot_not_found")
    return {"bot": {"id": BOT, "app_id": "A1", "user_id": BOT_USER, "name": "threadfast", "deleted": False}}


def _reacted(slack: FakeSlack, args: Args) -> tuple[Message, list[str]]:
    channel = _readable_place(slack, args)
    message = channel.messages.get(args.need("timestamp"))
    if message is None or message.deleted:
        raise Refusal("message_not_found")
    name = args.need("name")
    if not name.replace("_", "").replace("-", "").replace("+", "").isalnum():
        raise Refusal("invalid_name")
    return message, message.reactions.setdefault(name, [])


def _readable_place(slack: FakeSlack, args: Args) -> Channel:
    channel = _seen(slack, args.need("channel"))
    if channel.archived:
        raise Refusal("is_archived")
    if not channel.member:
        raise Refusal("not_in_channel")
    return channel


@method("reactions.add", "reactions:write")
def add_reaction(slack: FakeSlack, args: Args) -> Json:
    _, users = _reacted(slack, args)
    if BOT_USER in users:
        raise Refusal("already_reacted")
    users.append(BOT_USER)
    return {}


@method("reactions.remove", "reactions:write")
def remove_reaction(slack: FakeSlack, args: Args) -> Json:
    message, users = _reacted(slack, args)
    if BOT_USER not in users:
        raise Refusal("no_reaction")
    users.remove(BOT_USER)
    message.reactions = {name: those for name, those in message.reactions.items() if those}
    return {}
