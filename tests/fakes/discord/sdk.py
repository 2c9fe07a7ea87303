"""The real discord.py against the fake: clients that are connected, or only logged in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import discord
import yarl
from discord.gateway import DiscordWebSocket
from discord.http import Route

from tests.fakes.discord.server import FakeDiscord

READY_S, CLOSED_S = 60.0, 20.0


@contextlib.contextmanager
def pointed_at(fake: FakeDiscord) -> Iterator[None]:
    """discord.py speaks to the fake while this lasts."""
    before = Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY
    Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = fake.api_base_url, yarl.URL(fake.gateway_url)
    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
    try:
        yield
    finally:
        Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = before


class Seen(discord.Client):
    """A client that notes what it meets: ``seen`` are (event, argument) in order; the fake's ``until`` is woken by it."""

    def __init__(self, **options: Any) -> None:
        intents = options.pop("intents", None) or discord.Intents.default()
        intents.message_content = options.pop("message_content", True)
        options = {
            "max_messages": None,
            "chunk_guilds_at_startup": False,
            "guild_ready_timeout": 0.01,
        } | options
        super().__init__(intents=intents, allowed_mentions=discord.AllowedMentions.none(), **options)
        self.seen: list[tuple[str, Any]] = []
        self.fake: FakeDiscord | None = None

    def dispatch(self, event: str, /, *args: Any, **more: Any) -> None:
        if not event.startswith("socket"):
            self.seen.append((event, args[0] if args else None))
        super().dispatch(event, *args, **more)
        if self.fake:
            self.fake.changed()

    def of(self, event: str) -> list[Any]:
        return [what for name, what in self.seen if name == event]


@contextlib.asynccontextmanager
async def connected(client: Seen, fake: FakeDiscord) -> AsyncIterator[None]:
    """Run *client* against the fake, from ready to closed; neither is waited for without end."""
    client.fake = fake
    with pointed_at(fake):
        running = asyncio.ensure_future(client.start(fake.token))
        ready = asyncio.ensure_future(client.wait_until_ready())
        try:
            await asyncio.wait({running, ready}, timeout=READY_S, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            assert ready.done(), f"the client was not ready within {READY_S:.0f} s"
            yield
        finally:
            closing = asyncio.ensure_future(client.close())
            await asyncio.wait({closing, running}, timeout=CLOSED_S)
            for task in (ready, closing, running):
                task.cancel()
            await asyncio.gather(ready, running, closing, return_exceptions=True)


@contextlib.asynccontextmanager
async def logged_in(fake: FakeDiscord, client: discord.Client | None = None) -> AsyncIterator[discord.Client]:
    """A client that has a token and no gateway."""
    client = client or Seen()
    with pointed_at(fake):
        async with client:
            await client.login(fake.token)
            yield client


@contextlib.asynccontextmanager
async def rest(**options: Any) -> AsyncIterator[tuple[FakeDiscord, discord.Client]]:
    """The fake, and a client that is only logged in."""
    async with FakeDiscord(**options) as fake, logged_in(fake) as client:
        yield fake, client


@contextlib.asynccontextmanager
async def gateway(**options: Any) -> AsyncIterator[tuple[FakeDiscord, Seen]]:
    """The fake, and a client that is connected to its gateway."""
    client = Seen()
    async with FakeDiscord(**options) as fake, connected(client, fake):
        yield fake, client


def place(client: discord.Client, channel: str) -> discord.PartialMessageable:
    return client.get_partial_messageable(int(channel))


async def refused(call: Awaitable[Any]) -> tuple[int, int]:
    """Status and code of the error that *call* must end with."""
    try:
        answer = await call
    except discord.HTTPException as error:
        return error.status, error.code
    raise AssertionError(f"it was not refused: {answer}")
