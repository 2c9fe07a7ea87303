import logging
import random
from functools import partial

import anyio
import pytest

from tests.sim.loop import SimLoop
from tests.transports.settling import beside
from threads.errors import TransportFatal, TransportUnavailable
from transports.shared.link.supervisor import LONGEST_RETRY_AFTER_S, STEADY_S, LinkDown, Supervisor, pause


@pytest.fixture
def anyio_backend():
    return "asyncio", {"loop_factory": lambda: SimLoop(random.Random(1), 1000.0)}


class Fake:
    """A link that plays a script: how long each of its lives is up (None: never), and how it ends."""

    def __init__(self, *script):
        self.script = list(script)
        self.tries = []
        self.states = []
        self.supervisor = Supervisor("fake")

    async def __call__(self, connected):
        self.tries.append(anyio.current_time())
        self.states.append(self.supervisor.state)
        if not self.script:
            await anyio.sleep_forever()
        up_s, end = self.script.pop(0)
        if up_s is not None:
            connected()
            await anyio.sleep(up_s)
        if end is not None:
            raise end

    @property
    def gaps(self):
        return [round(b - a, 3) for a, b in zip(self.tries, self.tries[1:], strict=False)]


async def play(*script):
    """Run until the script is played and the next try has begun, or the supervisor gives up."""
    fake = Fake(*script)
    async with beside(partial(fake.supervisor.run, fake)):
        while len(fake.tries) <= len(script):
            await anyio.sleep(0.1)
    return fake


async def test_it_tries_again_after_1_2_4_seconds_and_never_waits_longer_than_60():
    fake = await play(*[(None, LinkDown("refused"))] * 9)
    assert fake.gaps == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_the_fifth_failure_in_a_row_is_disconnected_and_it_keeps_trying():
    fake = await play(*[(None, LinkDown("refused"))] * 6)
    assert fake.states == ["starting", *["reconnecting"] * 4, "disconnected", "disconnected"]


async def test_a_link_that_comes_up_after_a_long_outage_is_connected_again():
    fake = Fake(*[(None, LinkDown("refused"))] * 6, (None, None))
    seen = []

    async def link(connected):
        if len(fake.script) > 1:
            await fake(connected)
        connected()
        seen.append(fake.supervisor.state)
        await anyio.sleep_forever()

    with anyio.move_on_after(1000):
        await fake.supervisor.run(link)
    assert seen == ["connected"]


async def test_a_link_that_drops_as_soon_as_it_is_up_is_backed_off_all_the_same():
    fake = await play(*[(0.5, LinkDown("dropped"))] * 6)
    assert fake.gaps == [1.5, 2.5, 4.5, 8.5, 16.5, 32.5]
    assert fake.states[-1] == "disconnected"


async def test_a_link_that_stayed_up_begins_a_new_count():
    fake = await play(*[(None, LinkDown("refused"))] * 3, (STEADY_S + 1, LinkDown("dropped")), (None, None))
    assert fake.gaps == [1, 2, 4, STEADY_S + 2, 2]
    assert fake.states[-1] == "reconnecting"


async def test_a_link_that_just_returns_is_down_too():
    fake = await play((100, None), (None, None))
    assert fake.gaps == [101, 2]
    assert fake.states == ["starting", "reconnecting", "reconnecting"]


@pytest.mark.parametrize("error", [LinkDown("later", retry_after=30), TransportUnavailable(retry_after=30)])
async def test_the_platforms_own_wait_is_kept_and_is_no_bug(error, caplog):
    assert (await play((None, error))).gaps == [30]
    assert not any(record.exc_info for record in caplog.records)


async def test_a_platform_cannot_keep_us_away_for_ever():
    assert pause(1, 1e9) == LONGEST_RETRY_AFTER_S


async def test_a_fatal_fault_stops_it_and_is_raised():
    fake = Fake((None, LinkDown("refused")), (5, TransportFatal("the token is revoked")))
    with pytest.raises(TransportFatal, match="revoked"):
        await fake.supervisor.run(fake)
    assert fake.supervisor.state == "stopped"
    assert len(fake.tries) == 2


async def test_a_bug_in_a_link_is_logged_with_its_traceback_and_costs_a_reconnect(caplog):
    fake = await play((None, ZeroDivisionError("odd frame")))
    assert fake.gaps == [1]
    assert any(record.exc_info for record in caplog.records)


async def test_cancelling_stops_it():
    fake = Fake((1000, None))
    with anyio.move_on_after(1):
        await fake.supervisor.run(fake)
    assert fake.supervisor.state == "stopped"


async def test_who_waits_for_the_reconnect_is_let_go_with_it_and_at_once_while_connected():
    fake, passed = Fake((10, LinkDown("dropped")), (10, LinkDown("dropped"))), []

    async def wait_from(at):
        await anyio.sleep_until(at)
        await fake.supervisor.reconnected()
        passed.append(anyio.current_time() - 1000)

    async with beside(partial(fake.supervisor.run, fake)) as tasks:
        for at in (1005, 1010.5, 1022):  # connected, between two links, while the third hangs in its connect
            tasks.start_soon(wait_from, at)
        await anyio.sleep(100)
    assert passed == [5, 11]


async def test_connected_again_within_one_link_stays_connected(caplog):
    caplog.set_level(logging.INFO)
    supervisor = Supervisor("fake")

    async def link(connected):
        for _ in range(3):
            connected()
            await anyio.sleep(STEADY_S / 2)
        raise LinkDown("dropped")

    with anyio.move_on_after(STEADY_S * 1.5 + 0.5):
        await supervisor.run(link)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "transport.connected: fake",
        "transport.down: fake: reconnecting (LinkDown: dropped); failure 1 in a row, trying again in 1 s",
    ]


async def test_how_long_a_link_was_silent_is_counted_from_its_last_sign_and_not_while_it_is_down():
    fake = Fake((10, LinkDown("gone")))
    assert fake.supervisor.silent_s is None
    async with beside(partial(fake.supervisor.run, fake)):
        await anyio.sleep(4)
        assert fake.supervisor.silent_s == pytest.approx(4)
        fake.supervisor.heard()
        await anyio.sleep(3)
        assert fake.supervisor.silent_s == pytest.approx(3)
        await anyio.sleep(4)
        assert fake.supervisor.silent_s is None
