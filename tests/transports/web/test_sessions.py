"""Links work once and for a while; sessions last while they are used."""

from datetime import UTC, datetime, timedelta

import pytest

from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles
from transports.web.sessions import LINK_S, SESSION_S, Person, Sessions, WebState


class Clock:
    now = datetime(2026, 11, 25, tzinfo=UTC)

    def __call__(self):
        return self.now

    def forward(self, seconds):
        self.now += timedelta(seconds=seconds)


async def at_once(function, *args):
    return function(*args)


@pytest.fixture
def clock():
    return Clock()


async def opened(folder, clock):
    sessions = Sessions(await JsonFiles(PosixDisk(), folder, at_once).open("web", WebState()), clock)
    await sessions.open()
    return sessions


async def test_a_link_opens_one_session(tmp_path, clock):
    sessions = await opened(tmp_path, clock)
    link = sessions.link(Person(id="ann", name="Ann"))
    cookie = await sessions.enter(link)
    assert (sessions.person(cookie).id, sessions.person(cookie).name) == ("ann", "Ann")
    assert await sessions.enter(link) is None


async def test_an_old_link_opens_nothing(tmp_path, clock):
    sessions = await opened(tmp_path, clock)
    link = sessions.link(Person(id="ann"))
    clock.forward(LINK_S)
    assert await sessions.enter(link) is None


@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: s + "x", lambda s: "", lambda s: "x" * 9999])
async def test_a_changed_link_opens_nothing(tmp_path, clock, change):
    sessions = await opened(tmp_path, clock)
    assert await sessions.enter(change(sessions.link(Person(id="ann")))) is None


async def test_a_link_of_another_bot_opens_nothing(tmp_path, clock):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    ours, theirs = await opened(tmp_path / "a", clock), await opened(tmp_path / "b", clock)
    assert await ours.enter(theirs.link(Person(id="ann"))) is None


async def test_a_session_outlives_the_process_and_its_cookie_is_not_on_disk(tmp_path, clock):
    sessions = await opened(tmp_path, clock)
    cookie = await sessions.enter(sessions.link(Person(id="ann")))
    again = await opened(tmp_path, clock)
    assert again.person(cookie).id == "ann"
    assert cookie not in (tmp_path / "web.json").read_text()
    assert (tmp_path / "web.json").stat().st_mode & 0o777 == 0o600


async def test_a_session_ends_when_it_is_not_used_for_long(tmp_path, clock):
    sessions = await opened(tmp_path, clock)
    cookie = await sessions.enter(sessions.link(Person(id="ann")))
    clock.forward(SESSION_S / 2)
    await sessions.touch(cookie)
    clock.forward(SESSION_S * 0.9)
    assert sessions.person(cookie)
    clock.forward(SESSION_S * 0.2)
    assert sessions.person(cookie) is None


async def test_who_leaves_is_gone_everywhere(tmp_path, clock):
    sessions = await opened(tmp_path, clock)
    cookie = await sessions.enter(sessions.link(Person(id="ann")))
    await sessions.leave(cookie)
    assert sessions.person(cookie) is None
    assert (await opened(tmp_path, clock)).person(cookie) is None


async def test_a_token_belongs_to_one_session(tmp_path, clock):
    sessions = await opened(tmp_path, clock)
    ann, bob = [await sessions.enter(sessions.link(Person(id=name))) for name in ("ann", "bob")]
    assert sessions.is_own(ann, sessions.anti_forgery(ann))
    assert not sessions.is_own(ann, sessions.anti_forgery(bob))
    assert not sessions.is_own(ann, "")
    assert not sessions.is_own(ann, "é")


async def test_sessions_and_used_links_are_bounded(tmp_path, clock, monkeypatch):
    monkeypatch.setattr("transports.web.sessions.MOST_SESSIONS", 20)
    sessions = await opened(tmp_path, clock)
    first = await sessions.enter(sessions.link(Person(id="ann")))
    for _ in range(20):
        clock.forward(1)
        last = await sessions.enter(sessions.link(Person(id="ann")))
    assert sessions.person(first) is None
    assert sessions.person(last)
    assert len(sessions._state.value.sessions) == 20
    assert len(sessions._state.value.used) <= LINK_S + 1
