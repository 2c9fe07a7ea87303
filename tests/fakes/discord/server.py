"""The server of the fake: one port for REST, the gateway and the CDN."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Self

from aiohttp import web

from tests.fakes.discord import answers as _answers
from tests.fakes.discord import cdn
from tests.fakes.discord import posting as _posting
from tests.fakes.discord import reading as _reading
from tests.fakes.discord import threads as _threads
from tests.fakes.discord import web as door
from tests.fakes.discord.faults import Fault
from tests.fakes.discord.interaction_events import InteractionEvents
from tests.fakes.discord.limits import Buckets
from tests.fakes.discord.records import Call
from tests.fakes.discord.session import MESSAGE_CONTENT
from tests.fakes.faults import Failing, Script

TOKEN = "fake-bot.token.of-discord"
MIB = 1024 * 1024
_REGISTERED = (_answers, _posting, _reading, _threads)
"""The modules whose routes the door knows, because they are imported."""


class FakeDiscord(Failing[Fault, Call], InteractionEvents):
    """``async with FakeDiscord() as discord``; see the package's docstring.

    The kinds of its calls are routes: "POST /channels/{}/messages", "GET /cdn", "GET /gateway", and "*" for any.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        rate_limits: bool = False,
        rate_scale: float = 1.0,
        message_content: bool = True,
        heartbeat: float = 41.25,
        nonce_lasts: float = 300.0,
        nonce_shown: float = 60.0,
        upload_limit: int = 10 * MIB,
        deadline: float = 3.0,
        echo: bool = True,
        port: int = 0,
    ) -> None:
        super().__init__(clock, wall)
        self.token = TOKEN
        self.message_content, self.upload_limit, self.echo = message_content, upload_limit, echo
        self.privileged = MESSAGE_CONTENT if message_content else 0
        """The privileged intents that are ticked."""
        self.nonces.lasts, self.nonces.shown, self.deadline = nonce_lasts, nonce_shown, deadline
        self.buckets = Buckets(self.clock, self.wall, on=rate_limits, scale=rate_scale)
        self.limited: list[Call] = []
        """Calls that the limits refused."""
        self.invalid = 0
        """Answers 401, 403 and 429: ten thousand of them in ten minutes ban an address."""
        self.bugs: list[Exception] = []
        """What went wrong in the fake itself; raised at the end."""
        self.script = Script()
        self.heartbeat = heartbeat
        self.downloads: list[str] = []
        """The names of files that were fetched from the CDN."""
        self._port = port

    # addresses

    @property
    def api_base_url(self) -> str:
        return f"{self.url}/api/v10"

    # faults

    def revoke(self) -> None:
        """The token is worth nothing any more: 401, and links are closed with 4004."""
        self.revoked = True
        for link in self.links:
            link.close_soon(4004)

    def cut_off(self, *, offline: bool = True) -> None:
        """Every connection is reset, those that are up too, until ``cut_off(offline=False)``."""
        self.offline = offline
        if offline:
            self.cut_links()

    def expire_links(self) -> None:
        """Addresses of files that were given out so far are dead; who fetches the message gets fresh ones."""
        self.generation += 1

    def count_invalid(self, status: int) -> None:
        self.invalid += status in (401, 403, 429)

    # serving

    async def __aenter__(self) -> Self:
        self.closing = asyncio.Event()
        app = web.Application(client_max_size=1024 * MIB)
        door.install(self, app)
        app.router.add_get("/gateway{rest:/?}", self.serve_gateway)
        app.router.add_get("/cdn/{kind}/{channel}/{file}/{name}", partial(cdn.download, self))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        self._port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.gateway_url = f"ws://127.0.0.1:{self._port}/gateway"
        await web.SockSite(self._runner, self._listener, backlog=1024).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closing.set()
        # asyncio leaks what it accepts in the very step that closes the server: accept nothing more, then close
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        for _step in range(3):
            await asyncio.sleep(0)
        self.cut_links()
        self.stop_waiting()
        await self._runner.cleanup()
        if self.bugs:
            raise AssertionError("the fake itself is broken") from self.bugs[0]
