"""One browser at most: started when a page is wanted, closed when none was for a while, and after any trouble.

| state    | event                                | next                                       |
|----------|--------------------------------------|--------------------------------------------|
| none     | a page is wanted                     | starting                                   |
| starting | it answers                           | serving                                    |
| starting | it fails, or `START_S` is over       | none; who waits gets `BrowserFailed`       |
| serving  | nobody wanted a page for `idle_s`    | closing                                    |
| serving  | it died, or does not answer          | closing; who uses it gets `BrowserFailed`  |
| serving  | its pages take too much memory       | closing; who uses it gets `PageFailed`      |
| closing  | its processes are gone               | none                                       |
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio

from bot.guards.egress import Egress
from threads.wording import first_cause

from .protocol import BrowserFailed, PageFailed, PageRequest, PageView
from .proxy import Proxy, Visit

log = logging.getLogger(__name__)

MAX_PAGES = 2
IDLE_S = 60.0
WATCH_S = 1.0
ANSWER_S = 6.0
"""How long the browser (not a page) may take to answer."""

MAX_MEMORY = 1_500_000_000
"""Bytes that all processes of the browser may have for themselves; with one plain page it is about 150 MB."""

CLOSED = "it was closed"


class Engine(Protocol):
    """A browser that runs."""

    async def view(self, request: PageRequest, visit: Visit, deadline: float) -> PageView:
        """As `Pages.view`."""
        ...

    async def memory(self) -> int:
        """Return the bytes its processes have for themselves; raises whatever where it does not answer."""
        ...


OnFailure = Callable[[str, bool], None]
"""Takes why a browser can be used no longer, and whether a page in it is to blame."""

Launch = Callable[[int, OnFailure], AbstractAsyncContextManager[Engine]]
"""Runs a browser whose proxy is that port of loopback."""


class _Session:
    """One life of the browser. ``ready``: it serves, or ``problem`` says why not, ``by_page`` whose fault that is."""

    def __init__(self) -> None:
        self.ready, self.stirred, self.over = anyio.Event(), anyio.Event(), anyio.Event()
        self.problem = ""
        self.by_page = False
        self.users = 0
        self.engine: Engine | None = None

    def fail(self, problem: str, by_page: bool = False) -> None:
        if not self.over.is_set():
            self.problem, self.by_page = problem, by_page
        self.over.set()
        self.ready.set()
        self.stirred.set()

    def check(self) -> None:
        """Raise `BrowserFailed` if it is over, `PageFailed` if a page ended it."""
        if self.over.is_set():
            raise PageFailed(self.problem) if self.by_page else BrowserFailed(self.problem)


class SharedBrowser:
    """The `Pages` of real life. `run` owns the browser: without it no page is ever seen."""

    def __init__(
        self, egress: Egress, launch: Launch, *, idle_s: float = IDLE_S, max_memory: int = MAX_MEMORY
    ) -> None:
        self._proxy, self._launch = Proxy(egress), launch
        self._idle_s, self._max_memory = idle_s, max_memory
        self._room = anyio.CapacityLimiter(MAX_PAGES)
        self._wanted = anyio.Event()
        self._session: _Session | None = None

    async def run(self) -> None:
        """Start the browser whenever one is wanted, and end it, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted, session = anyio.Event(), self._session
            assert session is not None
            try:
                await self._live(session)
                session.fail(CLOSED)
            except Exception as error:  # noqa: BLE001 - the boundary of the browser: whatever it died of
                session.fail(f"{type(first_cause(error)).__name__}: {first_cause(error)}")
            finally:
                session.fail("the bot is stopping")
            if session.problem != CLOSED:
                log.warning("browser.ended: %s", session.problem)

    async def view(self, request: PageRequest, deadline: float) -> PageView:
        with anyio.CancelScope(deadline=deadline):
            async with self._room, self._borrowed() as session:
                assert session.engine is not None
                visit = self._proxy.open_visit()
                try:
                    return await session.engine.view(request, visit, deadline)
                finally:
                    self._proxy.close_visit(visit)
        raise PageFailed("it did not come to rest in its time")

    @asynccontextmanager
    async def _borrowed(self) -> AsyncIterator[_Session]:
        if self._session is None or self._session.over.is_set():
            self._session = _Session()
            self._wanted.set()
        session = self._session
        session.users += 1
        session.stirred.set()
        try:
            await session.ready.wait()
            session.check()
            yield session
        except BrowserFailed as error:
            session.fail(str(error))
            session.check()
        except PageFailed:
            session.check()  # whatever became of the page, the browser's own end says more
            raise
        finally:
            session.users -= 1
            session.stirred.set()

    async def _live(self, session: _Session) -> None:
        async with (
            self._proxy.serving() as port,
            self._launch(port, session.fail) as engine,
        ):
            session.engine = engine
            session.ready.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, session, engine)
                await self._until_idle(session)
                session.fail(CLOSED)
                tasks.cancel_scope.cancel()

    async def _until_idle(self, session: _Session) -> None:
        while not session.over.is_set():
            session.stirred = anyio.Event()
            with anyio.move_on_after(None if session.users else self._idle_s):
                await session.stirred.wait()
                continue
            if not session.users:
                return

    async def _watch(self, session: _Session, engine: Engine) -> None:
        """End a browser that takes too much memory, or does not answer."""
        while True:
            await anyio.sleep(WATCH_S)
            if not session.users:
                continue
            try:
                with anyio.fail_after(ANSWER_S):
                    taken = await engine.memory()
            except Exception as error:  # noqa: BLE001 - the boundary of the browser, as in `run`
                session.fail(f"it does not answer: {type(error).__name__}")
                return
            if taken > self._max_memory:
                session.fail(f"its pages took {taken // 1_000_000} MB", by_page=True)
                return
