"""A loopback Discord: REST, gateway and CDN on one port, after Discord's documents and measurements, not our code.

    async with FakeDiscord() as discord:                       # inside any asyncio (anyio) test, real sockets
        Route.BASE = discord.api_base_url                      # http://127.0.0.1:PORT/api/v10
        DiscordWebSocket.DEFAULT_GATEWAY = URL(discord.gateway_url)        # ws://127.0.0.1:PORT/gateway
        await client.start(discord.token)                      # tests/fakes/discord/sdk.py does these three lines
        await discord.until(lambda: discord.ready)             # woken by every change, 10 s at most
        said = await discord.say(U1, CHANNEL, f"<@{BOT}> hello")
        [answer] = discord.posts(said.id)                      # the bot's, in the thread that was opened from it

Ids are snowflakes, as text. The guild GUILD has CHANNEL, CHANNEL2, FORUM and VOICE, the bot BOT (application APP) with
its role BOT_ROLE, the people U1, U2 and U3, and the roles ROLE and EVERYONE. ``dm(U1)`` is the channel of a person's
direct messages. ``user(name)`` and ``channel(name, kind="text")`` add more.

The verbs of people (`people`) return the record at once; ``await`` it, and its events are on the wire. ``press``,
``slash`` and ``autocomplete`` (`interaction_events`) return an `Interaction`; ``await`` it, and it is acknowledged or its 3 s are
over. A message is taken as its record or its id. ``quiet=True``: it is in the history, but its event got lost.

What people see: ``message(id)``, ``messages(channel)``, ``posts(channel=None)`` (the bot's), ``whispers`` (ephemeral
ones), ``threads(channel)``, ``pings``, ``unfurls`` (previews), ``typings``, ``commands`` and ``downloads``.
What is counted: ``calls``, ``calls_to("POST /channels/{}/messages")``, ``limited`` (429 by the limits), ``invalid``
(401, 403 and 429), ``identifies``, ``resumes``, ``ready``, ``links``, ``opened`` and ``closes`` (the clients' codes).

What fails: ``fail(route, Fault, ..., forever=False, when=lambda call: ...)`` with the faults of `faults`. A route is
one of ``calls_to``, ``"*"`` (any call of REST), ``"GET /cdn"`` or ``"GET /gateway"`` (the upgrade). ``applied=True``:
the call is carried out, then fails. ``gate(route)`` holds a call, and ``heal(route=None)`` ends faults. Also
``revoke()`` (the token), ``cut_off()`` (the network), ``expire_links()`` (of the CDN), ``deny(channel, permission)``,
``closed_dms``, and ``later(seconds)``, which moves the clocks. A link can ``abort()``, ``freeze()``, ``reconnect()``,
``invalidate()`` and ``close(code)``. ``forget_sessions()`` refuses resumes, ``dead`` refuses upgrades.

What is left out: private threads, threads that archive themselves, THREAD_MEMBERS_UPDATE and THREAD_LIST_SYNC, slow mode,
verification, audit logs, stickers, polls, voice, shards, links that are closed for want of heartbeats, and calls that
our client does not make.
What is a guess (Discord tells no numbers): the buckets, three edits in 20 s of a message that is an hour old, how long a
nonce is kept and shown. A nonce whose message was deleted is answered 10008, as Discord means it (discord-api-docs #6647).

A bug of the fake itself is raised when it is left. Unset HTTP(S)_PROXY in tests.
"""

from tests.fakes.discord.faults import Cut, Fault, Garbage, Gate, RateLimited, Refused, Slow, Stall, Status
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
