"""Real objects of discord.py, made of what Discord sends over the wire."""

from __future__ import annotations

import warnings

import discord

from transports.discord.api.values import Me, Place

GUILD, TEXT, NEWS, VOICE, FORUM, THREAD, POST, DM = (str(700_000_000_000_000_000 + n) for n in range(8))
BOT, ANN, BOB, OTHER_BOT, WEBHOOK = (str(600_000_000_000_000_000 + n) for n in range(5))
BOT_ROLE, OPS = "500000000000000001", "500000000000000002"
ID, SENT_AT = "1174110000000000000", "2023-11-14T22:13:57.908+00:00"

ME = Me(BOT, "Threadfast", "900000000000000001", frozenset({BOT_ROLE}))
CHANNEL = Place(TEXT, "channel", GUILD, threads=True)
IN_THREAD = Place(THREAD, "thread", GUILD, parent=TEXT)
DIRECT = Place(DM, "direct")

NAMES = {BOT: "Threadfast", ANN: "Ann", BOB: "Bob", OTHER_BOT: "Alarms", WEBHOOK: "Hook"}


def user(id_, **more):
    bot = {"bot": True} if id_ in (BOT, OTHER_BOT, WEBHOOK) else {}
    name = NAMES.get(id_, "someone")
    basics = {"id": id_, "username": name.lower(), "global_name": name, "discriminator": "0", "avatar": None}
    return {**basics, **bot, **more}


def member(*roles, nick=None):
    basics = {"joined_at": "2020-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}
    return {**basics, "roles": list(roles), "nick": nick}


def said(text="hi", author=ANN, *, channel=TEXT, id_=ID, mentions=(), **more):
    """A message as the gateway tells it; in a DM without a guild."""
    guild = {} if channel == DM else {"guild_id": GUILD, "member": member()}
    return {
        "id": id_,
        "channel_id": channel,
        "type": 19 if "message_reference" in more and more["message_reference"].get("type") != 1 else 0,
        "content": text,
        "author": user(author) if isinstance(author, str) else author,
        "mentions": [user(one) for one in mentions],
        "mention_roles": [],
        "mention_everyone": False,
        "attachments": [],
        "embeds": [],
        "timestamp": "2023-11-14T22:13:57.908000+00:00",
        "edited_timestamp": None,
        "pinned": False,
        "tts": False,
        "flags": 0,
        "components": [],
        **guild,
        **more,
    }


def replying(to, *args, given=True, **more):
    """A message that replies to another, which Discord gives along, or tells to be gone (None)."""
    reference = {"type": 0, "message_id": to["id"], "channel_id": to["channel_id"]}
    referenced = {"referenced_message": to if given else None} if given is not ... else {}
    return said(*args, message_reference=reference, **referenced, **more)


def forwarding(*snapshots, text="", **more):
    basics = {"type": 0, "embeds": [], "attachments": [], "timestamp": SENT_AT, "edited_timestamp": None}
    reference = {"type": 1, "message_id": "1174000000000000000", "channel_id": NEWS}
    held = [{"message": {**basics, "content": "", **snapshot}} for snapshot in snapshots]
    return said(text, message_reference=reference, message_snapshots=held, **more)


def file(name="notes.txt", id_="1174110000000000001", **more):
    at = f"https://cdn.discordapp.com/attachments/1/{id_}/notes.txt?ex=1"
    basics = {
        "id": id_,
        "filename": name,
        "size": 12,
        "url": at,
        "proxy_url": at,
        "content_type": "text/plain",
    }
    return {**basics, **more}


def channel(id_, kind, **more):
    basics = {"id": id_, "type": kind, "guild_id": GUILD, "position": 0, "permission_overwrites": []}
    return {**basics, "name": f"c{kind}", "parent_id": None, "nsfw": False, "available_tags": [], **more}


def thread(id_, parent, kind=11, **more):
    archive = {
        "archived": False,
        "auto_archive_duration": 1440,
        "archive_timestamp": SENT_AT,
        "locked": False,
    }
    basics = {
        "id": id_,
        "type": kind,
        "guild_id": GUILD,
        "parent_id": parent,
        "owner_id": ANN,
        "name": "talk",
    }
    return {**basics, "message_count": 1, "member_count": 1, "thread_metadata": archive, **more}


def guild():
    role = {
        "color": 0,
        "hoist": False,
        "position": 1,
        "permissions": "0",
        "managed": False,
        "mentionable": True,
    }
    channels = [
        channel(TEXT, 0, name="general"),
        channel(NEWS, 5),
        channel(VOICE, 2, bitrate=1, user_limit=0),
    ]
    return {
        "id": GUILD,
        "name": "Guild",
        "roles": [{**role, "id": id_, "name": n} for id_, n in ((GUILD, "@everyone"), (OPS, "ops"))],
        "channels": [*channels, channel(FORUM, 15, name="help")],
        "threads": [thread(THREAD, TEXT), thread(POST, FORUM)],
        "members": [],
        "emojis": [],
        "features": [],
    }


def client(*, guilds=True):
    """A client that never connects: its state makes the objects; without *guilds* its cache is cold."""
    made = discord.Client(intents=discord.Intents.default(), max_messages=None)
    state = made._connection
    state.user = discord.ClientUser(state=state, data=user(BOT))
    if guilds:
        state._add_guild(discord.Guild(data=guild(), state=state))
    return made


def cached_channel(id_):
    """A channel or thread of the guild, as the client's cache has it."""
    return client().get_channel(int(id_)) or client().get_guild(int(GUILD)).get_thread(int(id_))


def archived_thread():
    """A thread as REST gives it, of a guild that is not in the cache."""
    state = client(guilds=False)._connection
    guild = state._get_or_create_unavailable_guild(int(GUILD))
    return discord.Thread(guild=guild, state=state, data=thread(THREAD, TEXT, 12))


def group_channel():
    state = client()._connection
    return discord.GroupChannel(me=state.user, state=state, data={"id": DM, "type": 3, "recipients": []})


def heard(data, event="MESSAGE_CREATE", *, guilds=True):
    """Let the library read one event of the gateway; return what it dispatches for it."""
    made, found = client(guilds=guilds), []
    made._connection.dispatch = lambda _, *args: found.extend(args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made._connection.parsers[event](data)
    return found[0]


def message(data, **more) -> discord.Message:
    return heard(data, **more)
