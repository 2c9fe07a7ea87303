"""One browser at most: started for a page, closed when idle and after any failure.

| state    | event                                | next                                         |
|----------|--------------------------------------|----------------------------------------------|
| none     | a call wants a page                  | starting                                     |
| starting | it answers                           | serving                                      |
| starting | it fails, or `START_S` is over       | none; the callers get `BrowserFailed`        |
| serving  | no call for `IDLE_S`                 | closing                                      |
| serving  | it died, or does not answer          | closing; the callers get `BrowserFailed`     |
| serving  | its pages take too much memory       | closing; the callers get `PageFailed`        |
| closing  | its processes are gone               | none                                         |
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import anyio
from pydantic.dataclasses import dataclass as validated

from bot.guards.egress import Egress
from threads.background import background_tasks
from threads.wording import first_cause

from .proxy import Proxy, Visit

log = logging.getLogger(__name__)

MAX_PAGES = 2
IDLE_S = 60.0
WATCH_S = 1.0
"""Seconds between two looks at a running browser."""

ANSWER_S = 6.0
"""Seconds that the browser (not a page) has to answer."""

MAX_MEMORY = 1_500_000_000
"""Bytes that all processes of the browser may have for themselves; one plain page takes about 150 MB."""

CLOSED = "it was closed"


class BrowserFailed(Exception):
    """The browser did not start, died, or does not answer; ``str(error)`` is for the operator's log."""


class PageFailed(Exception):
    """The page did not load in time, or its tab died; the browser itself works. ``str(error)`` is a clause."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A page to view. ``wait_for`` is a selector to wait for; ``full_page`` asks for more than the screen."""

    url: str
    wait_for: str = ""
    picture: bool = False
    full_page: bool = False


@validated(frozen=True, slots=True)
class PageView:
    """A page as a person would see it. ``status`` is HTTP's, or 0; ``links`` has one on each line.

    ``height`` is in CSS pixels. ``unready`` says what the page did not do in time. ``refused`` are the hosts that it
    was denied, and why. ``picture`` is a JPEG, or ``unpictured`` says for the log why there is none.
    """

    url: str
    title: str
    text: str
    links: str = ""
    status: int = 0
    cut: bool = False
    height: float = 0
    unready: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    picture: bytes = b""
    unpictured: str = ""


class Engine(Protocol):
    """A browser that runs."""

    async def view(self, request: PageRequest, visit: Visit, deadline: float) -> PageView:
        """See `SharedBrowser.view`."""

    async def memory(self) -> int:
        """Return the bytes that its processes have for themselves; raises any error if it does not answer."""


OnFailure = Callable[[BrowserFailed | PageFailed], None]
"""Gets the reason why a browser can no longer be used: `PageFailed` if a page is to blame."""

Launch = Callable[[int, OnFailure], AbstractAsyncContextManager[Engine]]
"""Runs a browser for a block; its proxy is that port of loopback."""


class _Session:
    """One run of the browser. Once ``ready`` it serves, until it has a ``failure``."""

    def __init__(self) -> None:
        self.ready, self.over = anyio.Event(), anyio.Event()
        self.failure: BrowserFailed | PageFailed | None = None
        self.users, self.used_at = 0, anyio.current_time()
        self.engine: Engine | None = None

    def fail(self, failure: BrowserFailed | PageFailed) -> None:
        """End the run; its first failure counts."""
        self.failure = self.failure or failure
        self.ready.set()
        self.over.set()

    def check(self) -> None:
        """Raise the failure if the run is over."""
        if self.failure:
            raise type(self.failure)(*self.failure.args)


class SharedBrowser:
    """The browser that all threads share. `run` owns it and must be running."""

    def __init__(self, egress: Egress, launch: Launch) -> None:
        self._proxy, self._launch = Proxy(egress), launch
        self._slots = anyio.CapacityLimiter(MAX_PAGES)
        self._wanted = anyio.Event()
        self._session: _Session | None = None

    async def run(self) -> None:
        """Start and end the browser as needed, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted, session = anyio.Event(), self._session
            assert session is not None
            try:
                await self._run_session(session)
            except Exception as error:  # noqa: BLE001 - the boundary of the browser: any error ends it only
                cause = first_cause(error)
                session.fail(BrowserFailed(f"{type(cause).__name__}: {cause}"))
            finally:
                session.fail(BrowserFailed("the bot is stopping"))
            if str(session.failure) != CLOSED:
                log.warning("browser.ended: %s", session.failure)

    async def view(self, request: PageRequest, deadline: float) -> PageView:
        """Return the page by *deadline* (anyio's clock).

        Raises `BrowserFailed`, `PageFailed`, and `bot.ports.errors.ToolError` for a fault of the address itself.
        """
        with anyio.CancelScope(deadline=deadline):
            async with self._slots, self._acquire() as session:
                assert session.engine is not None
                visit = self._proxy.open_visit()
                try:
                    return await session.engine.view(request, visit, deadline)
                finally:
                    self._proxy.close_visit(visit)
        raise PageFailed("it did not finish in time")

    @asynccontextmanager
    async def _acquire(self) -> AsyncIterator[_Session]:
        if self._session is None or self._session.failure:
            self._session = _Session()
            self._wanted.set()
        session = self._session
        session.users += 1
        try:
            await session.ready.wait()
            session.check()
            yield session
        except BrowserFailed as error:
            session.fail(error)
            session.check()
        except PageFailed:
            session.check()  # if the browser ended too, that says more
            raise
        finally:
            session.users, session.used_at = session.users - 1, anyio.current_time()

    async def _run_session(self, session: _Session) -> None:
        async with self._proxy.serving() as port, self._launch(port, session.fail) as engine:
            session.engine = engine
            session.ready.set()
            async with background_tasks() as tasks:
                tasks.start_soon(self._watch, session, engine)
                await session.over.wait()

    async def _watch(self, session: _Session, engine: Engine) -> None:
        """End a browser that is idle, takes too much memory, or does not answer."""
        while True:
            await anyio.sleep(WATCH_S)
            if not session.users:
                if anyio.current_time() - session.used_at >= IDLE_S:
                    session.fail(BrowserFailed(CLOSED))
                continue
            try:
                with anyio.fail_after(ANSWER_S):
                    taken = await engine.memory()
            except Exception as error:  # noqa: BLE001 - the boundary of the browser, as in `run`
                session.fail(BrowserFailed(f"it does not answer: {type(error).__name__}"))
                return
            if taken > MAX_MEMORY:
                session.fail(PageFailed(f"its pages took {taken // 1_000_000} MB"))
                return
