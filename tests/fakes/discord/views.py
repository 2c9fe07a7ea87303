"""Records as Discord's JSON shows them to the bot."""

from __future__ import annotations

from tests.fakes.discord.ids import (
    APP,
    BOT,
    DM,
    FORUM_TYPE,
    GUILD,
    HAS_THREAD,
    PERMISSIONS,
    Json,
    made_at,
    stamp,
)
from tests.fakes.discord.records import Attachment, Channel, Message
from tests.fakes.discord.world import World


def person(discord: World, message: Message) -> Json:
    if message.webhook and message.author not in discord.users:
        name = message.author_name
        return {"id": message.webhook, "username": name, "discriminator": "0000", "avatar": None, "bot": True}
    return discord.users[message.author].view()


def member(discord: World, user: str) -> Json:
    found = discord.users[user]
    return found.member_view() | {"user": found.view()}


def channel_view(discord: World, channel: Channel) -> Json:
    if channel.kind == DM:
        recipients = [discord.users[channel.user].view()]
        return {
            "id": channel.id,
            "type": DM,
            "last_message_id": channel.last,
            "recipients": recipients,
            "flags": 0,
        }
    if channel.is_thread:
        return thread_view(discord, channel)
    view: Json = {
        "id": channel.id,
        "type": channel.kind,
        "guild_id": GUILD,
        "name": channel.name,
        "position": list(discord.channels).index(channel.id),
        "permission_overwrites": _overwrites(channel),
        "parent_id": None,
        "nsfw": False,
        "topic": None,
        "rate_limit_per_user": 0,
        "last_message_id": channel.last,
        "flags": 0,
    }
    if channel.kind == FORUM_TYPE:
        posts = discord.threads(channel.id)
        view |= {"available_tags": [], "default_reaction_emoji": None, "default_sort_order": None}
        view |= {"default_forum_layout": 0, "last_message_id": posts[-1].id if posts else None}
    if channel.kind in (2, 13):
        view |= {"bitrate": 64000, "user_limit": 0, "rtc_region": None}
    return view


def _overwrites(channel: Channel) -> list[Json]:
    denied = sum(PERMISSIONS[name] for name in channel.denied)
    return [{"id": BOT, "type": 1, "allow": "0", "deny": str(denied)}] if denied else []


def thread_view(discord: World, thread: Channel) -> Json:
    said = sum(1 for one in discord.messages(thread.id) if one.id != thread.id and one.type != 21)
    view: Json = {
        "id": thread.id,
        "type": thread.kind,
        "guild_id": GUILD,
        "parent_id": thread.parent,
        "owner_id": thread.owner,
        "name": thread.name,
        "last_message_id": thread.last,
        "message_count": said,
        "total_message_sent": said,
        "member_count": 1,
        "rate_limit_per_user": 0,
        "flags": 0,
        "thread_metadata": {
            "archived": thread.archived,
            "locked": thread.locked,
            "auto_archive_duration": thread.archive_after,
            "archive_timestamp": stamp(thread.changed_at),
            "create_timestamp": stamp(thread.created_at),
        },
    }
    if discord.channels[thread.parent].kind == FORUM_TYPE:
        view["applied_tags"] = []
    return view


def attachment_view(discord: World, file: Attachment) -> Json:
    signed = f"?ex={discord.generation:x}&is=0&hm={int(file.id) % 65_521:x}"
    view: Json = {
        "id": file.id,
        "filename": file.name,
        "size": len(file.content),
        "url": f"{discord.url}/cdn/attachments/{file.channel}/{file.id}/{file.name}{signed}",
        "proxy_url": f"{discord.url}/cdn/proxy/{file.channel}/{file.id}/{file.name}{signed}",
        "content_type": file.kind,
    }
    if file.kind.startswith("image/"):
        view |= {"width": 1, "height": 1}
    if file.name == "voice-message.ogg":
        view |= {"duration_secs": 4.2, "waveform": "AAAA"}
    return view


def message_view(discord: World, message: Message, *, event: bool = False, nested: bool = False) -> Json:
    """A message; *event*: with the guild and the member, which only the gateway tells."""
    channel = discord.channels[message.channel]
    opened = discord.channels.get(message.id)
    thread = opened if opened and opened.is_thread and not opened.deleted else None
    in_thread_itself = thread is not None and message.channel == thread.id
    view: Json = {
        "id": message.id,
        "channel_id": message.channel,
        "author": person(discord, message),
        "content": message.content,
        "timestamp": stamp(made_at(message.id)),
        "edited_timestamp": None if message.edited_at is None else stamp(message.edited_at),
        "tts": False,
        "mention_everyone": message.mention_everyone,
        "mentions": [_mentioned(discord, channel, user, event=event) for user in message.mentions],
        "mention_roles": list(message.mention_roles),
        "attachments": [attachment_view(discord, file) for file in message.attachments],
        "embeds": [] if message.suppressed else list(message.embeds),
        "components": list(message.components),
        "pinned": message.pinned,
        "type": message.type,
        "flags": message.flags | (HAS_THREAD if thread and not in_thread_itself else 0),
    }
    view |= message.parts
    if message.nonce and discord.nonces.shows(message):
        view["nonce"] = message.nonce
    if message.reactions:
        view["reactions"] = [_reaction(name, users) for name, users in message.reactions.items()]
    if message.webhook:
        view["webhook_id"] = message.webhook
    if message.interaction:
        view |= {"application_id": APP, "interaction_metadata": message.interaction}
    if message.reference:
        view["message_reference"] = message.reference
    if message.snapshots:
        view["message_snapshots"] = [{"message": snapshot} for snapshot in message.snapshots]
    if message.type in (19, 21, 23) and not nested:
        view["referenced_message"] = _referenced(discord, message)
    if thread and not event and not in_thread_itself:
        view["thread"] = thread_view(discord, thread)
    if event and channel.guild and not message.ephemeral:
        view["guild_id"] = channel.guild
        if not message.webhook and (author := discord.users.get(message.author)):
            view["member"] = author.member_view()
    return view


def _mentioned(discord: World, channel: Channel, user: str, *, event: bool) -> Json:
    found = discord.users[user]
    return found.view() | (
        {"member": found.member_view()} if event and channel.guild and found.member else {}
    )


def _referenced(discord: World, message: Message) -> Json | None:
    try:
        said = discord.message((message.reference or {}).get("message_id", ""))
    except KeyError:
        return None
    return None if said.deleted else message_view(discord, said, nested=True)


def _reaction(name: str, users: list[str]) -> Json:
    return {
        "emoji": {"id": None, "name": name},
        "count": len(users),
        "count_details": {"burst": 0, "normal": len(users)},
        "me": BOT in users,
        "me_burst": False,
        "burst_colors": [],
    }


def redacted(view: Json) -> Json:
    """What is left of a message for an app without the message content intent."""
    hidden = {"content": "", "embeds": [], "attachments": [], "components": []}
    return view | hidden | ({"message_snapshots": []} if "message_snapshots" in view else {})


def guild_view(discord: World) -> Json:
    here = [one for one in discord.channels.values() if one.guild and not one.deleted]
    here = [one for one in here if discord.may(one, "VIEW_CHANNEL")]
    members = [member(discord, one.id) for one in discord.users.values() if one.member]
    return {
        "id": GUILD,
        "name": "Fake",
        "owner_id": next(user for user in discord.users if user != BOT),
        "features": [],
        "emojis": [],
        "stickers": [],
        "roles": [role.view(number) for number, role in enumerate(discord.roles.values())],
        "channels": [channel_view(discord, one) for one in here if not one.is_thread],
        "threads": [thread_view(discord, one) for one in here if one.is_thread and not one.archived],
        "members": members[:1],
        "member_count": len(members),
        "joined_at": "2020-04-14T00:00:00+00:00",
        "large": False,
        "unavailable": False,
        "preferred_locale": "en-US",
        "premium_tier": discord.premium_tier,
    }
