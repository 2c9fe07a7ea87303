"""The server of the fake: one port for the Web API, uploads, downloads, response addresses and Socket Mode."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

from aiohttp import web

from tests.fakes.faults import Failing, Script
from tests.fakes.slack import agent as _agent
from tests.fakes.slack import chat as _chat
from tests.fakes.slack import reading as _reading
from tests.fakes.slack import streams as _streams
from tests.fakes.slack import uploads
from tests.fakes.slack import web as door
from tests.fakes.slack.faults import Fault
from tests.fakes.slack.limits import Buckets
from tests.fakes.slack.people import People
from tests.fakes.slack.records import Call, File, Json, Session
from tests.fakes.slack.rules import STREAM_BYTES, STREAM_SECONDS, Refusal
from tests.fakes.slack.sockets import Offline, Sockets

BOT_TOKEN, APP_TOKEN = "xoxb-fake-token", "xapp-fake-token"
SCOPES = frozenset(
    [
        "app_mentions:read",
        "assistant:write",
        "channels:history",
        "groups:history",
        "im:history",
        "mpim:history",
        "chat:write",
        "reactions:write",
        "reactions:read",
        "files:read",
        "files:write",
        "usergroups:read",
        "users:read",
        "commands",
        "channels:read",
        "groups:read",
        "im:read",
        "mpim:read",
        "im:write",
    ]
)


_REGISTERED = (_agent, _chat, _reading, _streams, uploads)
"""The modules whose methods the door knows, because they are imported."""


class FakeSlack(Failing[Fault, Json], People):
    """``async with FakeSlack() as slack``; see the package's docstring.

    The kinds of its calls are methods, "upload", "download", "response_url", and "*" for any.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        rate_limits: bool = False,
        rate_scale: float = 1.0,
        scopes: Iterable[str] = SCOPES,
        ack_budget: float = 3.0,
        redeliver_after: tuple[float, ...] = (0.0, 60.0, 300.0),
        offline: Offline = "retry",
        echo: bool = True,
        agent: bool = True,
        port: int = 0,
    ) -> None:
        super().__init__(clock, wall)
        self.bot_token, self.app_token = BOT_TOKEN, APP_TOKEN
        self.bot_tokens, self.app_tokens, self.revoked = {BOT_TOKEN}, {APP_TOKEN}, set[str]()
        self.scopes = set(scopes)
        self.buckets = Buckets(clock, on=rate_limits, scale=rate_scale)
        self.limited: list[Call] = []
        """Calls that the limits refused."""
        self.impatient: list[Call] = []
        """Calls that came before the Retry-After of their method was over."""
        self.bugs: list[Exception] = []
        """What went wrong in the fake itself; raised at the end."""
        self.script = Script()
        self.sockets = Sockets(self, ack_budget=ack_budget, redeliver_after=redeliver_after, offline=offline)
        self.echoes = echo
        self.action_tokens: set[str] = set()
        """Those that came with messages, and let the bot search."""
        self.agent = agent
        self.stream_bytes, self.stream_seconds = STREAM_BYTES, STREAM_SECONDS
        self.acked = 0
        self.downloads: list[tuple[str, str]] = []
        """(file id, token) of every download."""
        self.responses: list[Json] = []
        """What was posted to response addresses."""
        self.connections: set[int] = set()
        """The client's port of every TCP connection so far."""
        self._port = port

    # addresses

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def api_base_url(self) -> str:
        return f"{self.url}/api/"

    # faults

    def revoke(self) -> None:
        """Revoke the bot's token: token_revoked from now on."""
        self.revoked.add(self.bot_token)

    # rules that need the workspace

    def check_session_status(self, status: Any) -> None:
        if status not in (None, "active", "processing", "suspended", "closed"):
            raise Refusal("invalid_arguments", f"must be a valid enum value: {status}")

    def set_session(self, channel: str, thread: str, status: str, title: str = "") -> Session:
        """Set a session's status; its title only if the session is new."""
        session = self.sessions.get((channel, thread))
        if session is None:
            session = self.sessions[channel, thread] = Session(status, title)
        session.status = status
        session.statuses.append(status)
        self.changed()
        return session

    def new_file(self, name: str, content: bytes, mimetype: str, **more: Any) -> File:
        number = f"F{next(self.serial)}"
        url = f"{self.url}/files-pri/T1-{number}/download/{name}"
        self.files[number] = file = File(number, name, mimetype, content, url, **more)
        return file

    # serving

    async def __aenter__(self) -> Self:
        self.closing = asyncio.Event()
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.router.add_route("*", "/api/{method}", partial(door.answer, self))
        app.router.add_get("/link", self.sockets.serve)
        app.router.add_post("/upload/v1/{file}", partial(uploads.upload, self))
        app.router.add_get("/files-pri/T1-{file}/download/{name}", partial(uploads.download, self))
        app.router.add_post("/{kind:actions|app}/{rest:.*}", partial(uploads.respond, self))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        self._port = self._listener.getsockname()[1]
        await web.SockSite(self._runner, self._listener, backlog=1024).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closing.set()
        # asyncio leaks what it accepts in the very step that closes the server: accept nothing more, then close
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        for _step in range(3):
            await asyncio.sleep(0)
        self.sockets.stop()
        await self._runner.cleanup()
        if self.bugs:
            raise AssertionError("the fake itself is broken") from self.bugs[0]
