"""A loopback Discord: REST, gateway and CDN on one port, after Discord's documents and measurements, not our code.

    async with FakeDiscord() as discord:                       # inside any asyncio (anyio) test, real sockets
        Route.BASE = discord.api_base_url                      # http://127.0.0.1:PORT/api/v10
        DiscordWebSocket.DEFAULT_GATEWAY = URL(discord.gateway_url)        # ws://127.0.0.1:PORT/gateway
        await client.start(discord.token)                      # tests/fakes/discord/sdk.py does these three lines
        await discord.until(lambda: discord.ready)             # woken by every change, 10 s at most
        said = await discord.say(U1, CHANNEL, f"<@{BOT}> hello")
        [answer] = discord.posts(said.id)                      # the bot's, in the thread that was opened from it

Ids are snowflakes, as text. There: GUILD with CHANNEL, CHANNEL2, FORUM, VOICE; the bot BOT (application APP) with its
role BOT_ROLE; people U1 U2 U3 with DMs ``discord.dm(U1)``; roles ROLE and EVERYONE (= GUILD). More with
``discord.user(name)``, ``discord.role(name)``, ``discord.channel(name, kind="text")``; each returns its record.

People: ``say(user, channel, text, reply_to=, ping=True, files=[(name, bytes, type)], forward_of=, quiet=False)``
(mentions are read from the text; ``quiet``: it is in the history, its event got lost) ``edit(message, text)``
``delete(message)`` ``bulk_delete(*messages)`` ``react`` ``unreact`` ``unfurl(message)`` (an update without an edit)
``bot_says`` ``webhook_says`` ``system(channel, type)`` ``thread(user, message, name)`` ``post(user, forum, name, text)``
``archive(thread, locked=False)`` ``lock`` ``unarchive`` ``delete_channel`` ``join(user)`` ``leave(user)`` ``kick()``
``invite()`` ``outage()`` ``give_roles(user, *roles)`` ``pin`` ``loose_thread`` ``typing`` ``redeliver(message)``. A message is taken as record or id. Each returns its record at once;
``await`` it and its events are on the wire.
``press(user, message, custom_id)`` ``slash(user, channel, name, {option: value})`` ``autocomplete(user, channel, name,
option, typed)`` return an Interaction: ``await`` it = acknowledged, or 3 s are over; ``.acked .after_s .kind .answers
.choices .expire()``.

Seen: ``message(id)`` ``messages(channel)`` (visible, in order, with the system message that begins a thread)
``posts(channel=None)`` (the bot's, without that) ``whispers`` (ephemeral ones) ``threads(channel)`` ``pings`` ``unfurls`` ``typings`` ``commands`` ``downloads``. A message has
``id channel author content contents (all it ever had) deleted buttons [(label, custom_id)] reply_to nonce flags
mentions pings unfurls reactions {emoji: [user]} attachments embeds edits ours``.
Counted: ``calls`` ``calls_to("POST /channels/{}/messages")`` ``limited`` (429 by the limits) ``invalid`` (401, 403, 429
given) ``identifies`` ``resumes`` ``ready`` (links that had READY or RESUMED) ``links`` ``opened`` ``closes`` (codes
that clients closed with, 1006 without).

Faults: ``fail(route, Fault, ..., forever=False, when=lambda call: ...)`` with a route like the one of ``calls_to``,
``"*"`` (any REST), ``"GET /cdn"``, ``"GET /gateway"`` (the upgrade): ``Status(503, applied=, html=)`` (applied: carried
out, then failed) ``RateLimited(seconds, via=True, is_global=False)`` ``Refused(status, code, message)`` ``Cut(applied=)``
``Stall(applied=)`` ``Slow(seconds)`` ``Garbage()``; ``gate = discord.gate(route)``, ``await gate.reached()``,
``gate.open()``; ``heal(route=None)``; ``revoke()`` (401 and 4004); ``cut_off()`` (every connection is reset, until
``cut_off(offline=False)``); ``closed_dms.add(user)`` (50007); ``managed.add(channel)`` (the bot has MANAGE_THREADS);
``deny(channel, "SEND_MESSAGES", ...)`` and ``allow``; ``expire_links()`` (of the CDN); ``later(seconds)`` moves the clocks.
Links: ``links[0].abort() .freeze() .thaw() .reconnect() .invalidate(resumable=False) .beat()``, ``await .close(code)``,
``forget_sessions()`` (a resume is answered by op 9), ``refuse_resume``, ``dead = True`` (upgrades get 503), ``reorder``
(events come in pairs, the later one first), ``late_guilds`` (seconds), ``unavailable``.
Limits: ``FakeDiscord(rate_limits=True, rate_scale=10)``: buckets as Discord's, their windows ten times as short.
Options: ``message_content=True`` (ticked), ``heartbeat=41.25``, ``nonce_lasts=300``, ``nonce_shown=60`` (seconds that
history shows a nonce), ``upload_limit=10 MiB``, ``clock``, ``wall``, ``port``, ``echo=True``.

What is left out: private threads, threads that archive themselves, THREAD_MEMBERS_UPDATE and THREAD_LIST_SYNC, slow mode,
verification, audit logs, stickers, polls, voice, shards, links that are closed for want of heartbeats.
What is a guess (Discord tells no numbers): the buckets, three edits in 20 s of a message that is an hour old, how long a
nonce is kept and shown. A nonce whose message was deleted is answered 10008, as Discord means it (discord-api-docs #6647).

A bug of the fake itself is raised when it is left. Unset HTTP(S)_PROXY in tests.
"""

from tests.fakes.discord.faults import (
    Cut,
    Fault,
    Garbage,
    Gate,
    RateLimited,
    Refused,
    Slow,
    Stall,
    Status,
)
from tests.fakes.discord.ids import (
    APP,
    BOT,
    BOT_ROLE,
    CHANNEL,
    CHANNEL2,
    EVERYONE,
    FORUM,
    GUILD,
    ROLE,
    U1,
    U2,
    U3,
    VOICE,
)
from tests.fakes.discord.interactions import Interaction
from tests.fakes.discord.link import Link
from tests.fakes.discord.records import Attachment, Call, Channel, Message, Role, User
from tests.fakes.discord.server import TOKEN, FakeDiscord

__all__ = [
    "APP",
    "BOT",
    "BOT_ROLE",
    "CHANNEL",
    "CHANNEL2",
    "EVERYONE",
    "FORUM",
    "GUILD",
    "ROLE",
    "TOKEN",
    "U1",
    "U2",
    "U3",
    "VOICE",
    "Attachment",
    "Call",
    "Channel",
    "Cut",
    "FakeDiscord",
    "Fault",
    "Garbage",
    "Gate",
    "Interaction",
    "Link",
    "Message",
    "RateLimited",
    "Refused",
    "Role",
    "Slow",
    "Stall",
    "Status",
    "User",
]
