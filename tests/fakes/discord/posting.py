"""Messages over REST: send, edit, delete, and how a stored message sets off pings, previews and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.fakes.discord import rules
from tests.fakes.discord.ids import BOT, CATEGORY, DM, FORUM_TYPE, Json, made_at
from tests.fakes.discord.records import Attachment, Call, Channel, Message
from tests.fakes.discord.rules import Refusal
from tests.fakes.discord.views import channel_view, message_view, redacted
from tests.fakes.discord.web import route

if TYPE_CHECKING:
    from tests.fakes.discord.server import FakeDiscord

OLD = 3600.0


def place(discord: FakeDiscord, call: Call, *needed: str) -> Channel:
    """The channel of a call, if there is one and the bot may do that there."""
    channel = discord.channels.get(call.channel)
    if channel is None or channel.deleted:
        raise rules.unknown_channel()
    if channel.guild and not discord.may(channel, "VIEW_CHANNEL"):
        raise rules.missing_access()
    for permission in needed:
        if channel.kind != DM and not discord.may(channel, permission):
            raise rules.missing_permissions()
    return channel


def found(discord: FakeDiscord, call: Call, *needed: str) -> tuple[Channel, Message]:
    channel = place(discord, call, *needed)
    message = channel.messages.get(call.path["message"])
    if message is None or message.deleted:
        raise rules.unknown_message()
    return channel, message


def shown(discord: FakeDiscord, message: Message) -> Json:
    """A message as REST shows it, which hides as much as the gateway from an app without the intent."""
    view = message_view(discord, message)
    channel = discord.channels[message.channel]
    if discord.message_content or not channel.guild or message.ours or BOT in message.mentions:
        return view
    return redacted(view)


@route("POST", "/channels/{channel}/messages")
def create(discord: FakeDiscord, call: Call) -> Json:
    channel = place(discord, call)
    check_sendable(discord, channel)
    nonce = str(call.body.get("nonce") or "")
    if call.body.get("enforce_nonce") and (twin := discord.nonces.recent(nonce)):
        if twin.deleted:
            raise rules.unknown_message()
        return shown(discord, twin) | {"nonce": nonce}
    message = compose(discord, call.body, channel, call.files)
    if message.attachments and not (channel.kind == DM or discord.may(channel, "ATTACH_FILES")):
        raise rules.missing_permissions()
    message.nonce = nonce
    discord.nonces.remember(message)
    discord.put(message)
    return shown(discord, message) | ({"nonce": nonce} if nonce else {})


@route("POST", "/users/@me/channels")
def open_direct(discord: FakeDiscord, call: Call) -> Json:
    user = str(call.body.get("recipient_id"))
    if user not in discord.users:
        raise Refusal(404, 10013, "Unknown User")
    return channel_view(discord, discord.channels[discord.dm(user)])


def check_sendable(discord: FakeDiscord, channel: Channel) -> None:
    """Refuse what Discord refuses to a sender."""
    if channel.kind in (FORUM_TYPE, CATEGORY):
        raise Refusal(400, 50008, "Cannot send messages in a non-text channel")
    if channel.user in discord.closed_dms:
        raise Refusal(403, 50007, "Cannot send messages to this user")
    needed = "SEND_MESSAGES_IN_THREADS" if channel.is_thread else "SEND_MESSAGES"
    if channel.kind != DM and not discord.may(channel, needed):
        raise rules.missing_permissions()
    if channel.locked:
        raise rules.archived(locked=True)


def compose(
    discord: FakeDiscord, body: Json, channel: Channel, files: Mapping[str, Attachment], *, webhook: str = ""
) -> Message:
    """A message of a *body*, checked, with what it sets off; not stored yet."""
    rules.check_body(body)
    message = Message(discord.snowflake(), channel.id, BOT, body.get("content") or "")
    message.flags = int(body.get("flags") or 0) & rules.KEPT_FLAGS
    message.components = body.get("components") or []
    message.embeds = [{"type": "rich", **one} for one in body.get("embeds") or ()]
    message.webhook = webhook
    message.attachments = attached(discord, body, files, channel)
    if not (message.content or message.embeds or message.attachments or message.components):
        raise Refusal(400, 50006, "Cannot send an empty message")
    if reference := body.get("message_reference"):
        _refer(discord, channel, message, reference)
    note_effects(discord, channel, message, body.get("allowed_mentions"), notify=True)
    return message


def attached(
    discord: FakeDiscord, body: Json, files: Mapping[str, Attachment], channel: Channel
) -> list[Attachment]:
    """The files that came along, named as the body says."""
    if len(files) > rules.FILES:
        raise rules.too_long("attachments", rules.FILES)
    if sum(len(file.content) for file in files.values()) > discord.upload_limit:
        raise Refusal(413, 40005, "Request entity too large")
    names = {str(one.get("id")): one.get("filename") for one in body.get("attachments") or ()}
    for key, file in files.items():
        file.channel, file.name = channel.id, names.get(key) or file.name
        file.kind = discord.kind_of(file.name, file.kind)
        discord.files[file.id] = file
    return list(files.values())


def _refer(discord: FakeDiscord, channel: Channel, message: Message, reference: Json) -> None:
    said = channel.messages.get(str(reference.get("message_id")))
    if said is None or said.deleted:
        if reference.get("fail_if_not_exists", True):
            raise rules.invalid("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
        return
    if said.type not in (0, 19, 20, 23, 21):
        raise rules.invalid(
            "message_reference", "REPLIES_CANNOT_REPLY_TO_SYSTEM_MESSAGE", "Cannot reply to a system message"
        )
    message.type, message.reply_to = 19, said.id
    message.reference = {"type": 0, "channel_id": channel.id, "message_id": said.id}
    if channel.guild:
        message.reference["guild_id"] = channel.guild


def note_effects(
    discord: FakeDiscord, channel: Channel, message: Message, allowed: Json | None, *, notify: bool
) -> None:
    """Work out mentions, pings and previews; only a new message notifies (*notify*)."""
    notified = rules.notified(message.content, allowed)
    message.mentions = [user for user in notified.users if user in discord.users]
    message.mention_roles = [role for role in notified.roles if role in discord.roles]
    message.mention_everyone = notified.everyone and bool(channel.guild)
    pinged = message.reply_to and (allowed is None or allowed.get("replied_user", False))
    replied = discord.message(message.reply_to).author if pinged else ""
    if replied in discord.users and replied not in message.mentions:
        message.mentions.append(replied)
    if notify:
        everyone = ["everyone"] if message.mention_everyone else []
        others = [user for user in message.mentions if user != message.author]
        message.pings += [*others, *message.mention_roles, *everyone]
    if not message.suppressed and (channel.kind == DM or discord.may(channel, "EMBED_LINKS")):
        message.unfurls += [url for url in rules.links(message.content) if url not in message.unfurls]


@route("PATCH", "/channels/{channel}/messages/{message}")
def edit(discord: FakeDiscord, call: Call) -> Json:
    channel, message = found(discord, call)
    if message.author != BOT:
        raise Refusal(403, 50005, "Cannot edit a message authored by another user")
    if channel.archived:
        raise rules.archived(locked=channel.locked)
    if discord.wall() - made_at(message.id) > OLD and (wait := discord.buckets.old_edit(channel.id)):
        text = "Maximum number of edits to messages older than 1 hour reached. Try again later"
        raise Refusal(429, 30046, text, retry_after=round(wait, 3), **{"global": False})
    change(discord, message, call.body, call.files)
    return shown(discord, message)


def change(discord: FakeDiscord, message: Message, body: Json, files: Mapping[str, Attachment]) -> None:
    """Carry out an edit of a message of ours."""
    rules.check_body(body)
    channel = discord.channels[message.channel]
    new = attached(discord, body, files, channel)
    kept = message.attachments
    if "attachments" in body:
        stay = {str(one.get("id")) for one in body["attachments"] or ()}
        kept = [file for file in kept if file.id in stay]
    content = body["content"] or "" if "content" in body else message.content
    embeds = body.get("embeds", message.embeds) or []
    components = body.get("components", message.components) or []
    if not (content or embeds or components or kept or new):
        raise Refusal(400, 50006, "Cannot send an empty message")
    message.content, message.embeds, message.components = content, embeds, components
    message.attachments = [*kept, *new]
    if body.get("flags") is not None:
        message.flags = message.flags & ~rules.SUPPRESSING | int(body["flags"]) & rules.SUPPRESSING
    note_effects(discord, channel, message, body.get("allowed_mentions"), notify=False)
    message.edits += 1
    message.edited_at = discord.wall()
    if "content" in body:
        message.contents.append(content)
    discord.updated(message)


@route("DELETE", "/channels/{channel}/messages/{message}")
def delete(discord: FakeDiscord, call: Call) -> None:
    channel, message = found(discord, call)
    if message.author != BOT:
        raise rules.missing_permissions()
    if channel.archived:
        raise rules.archived(locked=channel.locked)
    discord.erase(message)
