"""The life of the one browser: started when wanted, closed when idle, gone after trouble."""

from contextlib import asynccontextmanager

import anyio
import pytest

from bot.extensions.browser import session as sessions
from bot.extensions.browser.session import BrowserFailed, PageFailed, PageRequest, PageView, SharedBrowser
from bot.guards.egress import Egress
from tests.patience import WITHIN_S, until
from threads.background import background_tasks

from .site import running

REQUEST = PageRequest("http://site.test/")
VIEW = PageView("u", "t", "x")


class Fake:
    """A browser; ``lives`` counts how often it was started, ``open`` how many run."""

    def __init__(self) -> None:
        self.lives = self.open = self.looking = self.most = self.taken = 0
        self.fails: list[Exception] = []
        self.hold: anyio.Event | None = None
        self.on_failure = None
        self.closed = anyio.Event()

    @asynccontextmanager
    async def __call__(self, port, on_failure):
        self.lives += 1
        if self.fails:
            raise self.fails.pop()
        self.open += 1
        self.on_failure = on_failure
        try:
            yield self
        finally:
            self.open -= 1
            self.closed.set()
            if self.hold:
                self.hold.set()

    async def view(self, request, visit, deadline):
        self.looking += 1
        self.most = max(self.most, self.looking)
        try:
            if self.hold:
                await self.hold.wait()
            if not self.open:
                raise BrowserFailed("cut off")
            return VIEW
        finally:
            self.looking -= 1

    async def memory(self):
        if isinstance(self.taken, Exception):
            raise self.taken
        return self.taken


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(sessions, "WATCH_S", 0.01)
    return Fake()


def soon(seconds=5.0):
    return anyio.current_time() + seconds


async def test_it_is_started_by_the_first_page_and_serves_the_next(fake):
    async with running(Egress(), fake) as one:
        await anyio.wait_all_tasks_blocked()
        assert fake.lives == 0
        assert await one.view(REQUEST, soon()) == VIEW
        await one.view(REQUEST, soon())
        assert fake.lives == 1
    assert fake.open == 0


async def test_it_is_closed_when_idle_and_started_again_when_wanted(fake, monkeypatch):
    monkeypatch.setattr(sessions, "IDLE_S", 0.01)
    async with running(Egress(), fake) as one:
        await one.view(REQUEST, soon())
        with anyio.fail_after(WITHIN_S):
            await fake.closed.wait()
        assert await one.view(REQUEST, soon()) == VIEW
        assert fake.lives == 2


async def test_a_page_that_takes_longer_than_the_idle_time_keeps_it_open(fake, monkeypatch):
    monkeypatch.setattr(sessions, "IDLE_S", 0.01)
    fake.hold = anyio.Event()
    async with running(Egress(), fake) as one, anyio.create_task_group() as tasks:
        tasks.start_soon(one.view, REQUEST, soon())
        await anyio.sleep(0.05)
        assert fake.open == 1
        fake.hold.set()


async def test_two_pages_at_once_and_no_third(fake):
    fake.hold = anyio.Event()
    async with running(Egress(), fake) as one, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one.view, REQUEST, soon())
        await anyio.wait_all_tasks_blocked()
        fake.hold.set()
    assert fake.most == sessions.MAX_PAGES


async def test_one_that_does_not_start_is_said_and_the_next_page_tries_again(fake):
    fake.fails = [RuntimeError("no usable sandbox")]
    async with running(Egress(), fake) as one:
        with pytest.raises(BrowserFailed, match="no usable sandbox"):
            await one.view(REQUEST, soon())
        assert await one.view(REQUEST, soon()) == VIEW


async def test_one_that_dies_cuts_off_who_uses_it_and_is_started_anew(fake):
    fake.hold = anyio.Event()

    async def die():
        await until(lambda: fake.looking)
        fake.on_failure(BrowserFailed("it died"))

    async with running(Egress(), fake) as one:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(die)
            with pytest.raises(BrowserFailed, match="it died"):
                await one.view(REQUEST, soon())
        fake.hold = None
        assert await one.view(REQUEST, soon()) == VIEW
    assert fake.lives == 2


@pytest.mark.parametrize(
    ("taken", "error", "word"),
    [(2_000_000_000, PageFailed, "2000 MB"), (OSError("mute"), BrowserFailed, "does not answer")],
)
async def test_one_that_takes_too_much_or_does_not_answer_is_ended(fake, taken, error, word):
    fake.hold, fake.taken = anyio.Event(), taken
    async with running(Egress(), fake) as one:
        with pytest.raises(error, match=word):
            await one.view(REQUEST, soon())
        assert fake.open == 0


async def test_a_page_without_an_end_is_stuck_and_the_browser_lives_on(fake):
    async with running(Egress(), fake) as one:
        await one.view(REQUEST, soon())
        fake.hold = anyio.Event()
        with pytest.raises(PageFailed):
            await one.view(REQUEST, soon(0.02))
        assert fake.open == 1
        assert fake.looking == 0


async def test_whoever_waits_when_the_bot_stops_is_not_left_waiting(fake):
    fake.hold = anyio.Event()
    async with anyio.create_task_group() as callers:
        one = SharedBrowser(Egress(), fake)
        ended = []

        async def call():
            with pytest.raises(BrowserFailed):
                await one.view(REQUEST, soon())
            ended.append(True)

        async with background_tasks() as tasks:
            tasks.start_soon(one.run)
            callers.start_soon(call)
            await anyio.wait_all_tasks_blocked()
    assert ended == [True]
