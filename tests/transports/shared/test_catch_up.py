"""Every gap is closed, whatever the platform: in order, tried again as its refusals say, and no channel waits for another."""

import random
from collections import defaultdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.sim.loop import SimLoop
from tests.transports.catching_up import START, CatchUpBot
from threads.background import background_tasks
from threads.errors import StoreUnavailable, TransportRejected, TransportUnavailable
from threads.store.mark_file import MarkFile
from transports.shared.backfill.catch_up import CatchUp
from transports.shared.backfill.marks import UNKNOWN
from transports.shared.backfill.message_time import NEVER
from transports.slack.events.timestamps import STAMPS

FILE = Path("/data/marks.json")
UNAVAILABLE = TransportUnavailable("500")


@pytest.fixture
def anyio_backend():
    return "asyncio", {"loop_factory": lambda: SimLoop(random.Random(1), START)}


def now():
    return datetime.fromtimestamp(anyio.current_time(), UTC)


class Platform:
    """The messages of each channel, oldest first; ``refuses`` are errors by channel, also of the look for new ones."""

    def __init__(self):
        self.channels, self.refuses, self.reads = defaultdict(list), {}, []
        self.pause, self.ticks = 0.0, 0

    def say(self, channel="C1"):
        self.ticks += 1
        at = f"{anyio.current_time() - 0.001 + self.ticks / 1e6:.6f}"
        self.channels[channel].append(at)
        return at

    async def ask(self, channel):
        self.reads.append(channel)
        await anyio.sleep(self.pause)
        if error := self.refuses.get(channel):
            raise error


class Bot(CatchUpBot):
    """One process, which is the `HistoryReader` too. An error's text is its verdict."""

    def __init__(self, platform, disk=None):
        super().__init__(FILE, STAMPS, now, disk)
        self.platform = platform
        self.catch_up = CatchUp(self.marks, self)

    async def look(self):
        await self.platform.ask(UNKNOWN)

    async def read(self, channel, _gap, /):
        begin, upto = self.marks.begin_of(channel), NEVER
        await self.platform.ask(channel)
        for upto in self.platform.channels[channel]:
            if STAMPS.is_before(begin, upto):
                await self.take(upto)
        return STAMPS.earlier(upto, self.marks.clock())

    def verdict(self, refused):
        return str(refused)

    async def mark(self, channel="C1"):
        """Return the mark that a kill would leave."""
        await self.marks.save()
        return float(self.stored()["channels"].get(channel, 0))


async def after_a_stop(**refuses):
    """A bot that knew the channels C1 and C2 up to now, stopped, and was started two hours later."""
    platform = Platform()
    before = Bot(platform)
    for channel in ("C1", "C2"):
        before.marks.move(channel, platform.say(channel))
    await before.marks.save()
    await anyio.sleep(7200)
    platform.refuses = refuses
    return Bot(platform, before.disk)


async def test_what_was_missed_is_handed_over_in_order_and_not_read_again_once_the_mark_has_passed_it():
    bot = await after_a_stop()
    missed = [bot.platform.say() for _ in range(5)]
    await bot.catch_up.run()
    assert bot.taken == missed
    assert await bot.mark() == float(missed[-1])
    await bot.catch_up.run()
    assert bot.taken == missed * 2  # events may overtake each other; the journal drops what it knows
    await anyio.sleep(3601)  # the journal may not know it any more
    await bot.catch_up.run()
    assert bot.taken == missed * 2


@pytest.mark.parametrize("error", [UNAVAILABLE, None], ids=["platform", "full disk"])
async def test_what_cannot_be_read_or_stored_now_keeps_its_mark_and_is_tried_again(error):
    bot = await after_a_stop(C1=error)
    missed, bot.full = bot.platform.say(), error is None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.catch_up.run)
        await anyio.sleep(30)
        assert bot.taken == []
        assert await bot.mark() < float(missed)
        bot.platform.refuses, bot.full = {}, False
    assert bot.taken == [missed]


@pytest.mark.parametrize(
    ("error", "tries", "followed"),
    [
        (TransportRejected("gone"), 1, False),
        (TransportRejected("unread"), 1, True),
        (TransportRejected("moment"), 3, True),
        (ValueError("a bug"), 3, True),
    ],
    ids=str,
)
async def test_a_refusal_that_stays_closes_the_gap_after_its_tries_and_is_logged_once(
    error, tries, followed, caplog
):
    bot = await after_a_stop(C1=error)
    bot.platform.say("C2")
    for rounds in (1, 2 if followed else 1):
        began = anyio.current_time()
        await bot.catch_up.run()
        assert anyio.current_time() - began < 60
        assert bot.platform.reads.count("C1") == rounds * tries  # each gap has its own tries
    assert bot.taken
    assert bot.marks.due() == []
    assert caplog.text.count("stays unread") == isinstance(error, TransportRejected)
    assert bool(await bot.mark()) is followed


async def test_a_token_that_is_not_good_any_more_loses_nothing():
    bot = await after_a_stop(C1=TransportRejected("token"))
    missed = bot.platform.say()
    with anyio.move_on_after(30):
        await bot.catch_up.run()
    bot.marks.move("C1", bot.platform.say())
    assert await bot.mark() < float(missed)


@pytest.mark.parametrize(
    ("error", "looks"), [(None, 1), (TransportRejected("unread"), 1), (UNAVAILABLE, 2)], ids=str
)
async def test_no_channel_is_read_while_new_ones_are_looked_for_and_all_are_when_that_fails(error, looks):
    bot = await after_a_stop(**{UNKNOWN: error})
    bot.platform.pause = 1.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.catch_up.run)
        await anyio.sleep(0.9)
        assert bot.platform.reads == [UNKNOWN]
        await anyio.sleep(0.9)
        bot.platform.refuses = {}
        assert sorted(bot.platform.reads[1:]) == ["C1", "C2"]
    assert bot.platform.reads.count(UNKNOWN) == looks


async def test_a_link_that_comes_back_again_meanwhile_makes_it_read_once_more_and_never_twice_at_once():
    bot = await after_a_stop()
    bot.platform.pause = 1.0
    first = bot.platform.say()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.catch_up.run)
        await anyio.sleep(1.5)  # C1 is being read
        second = bot.platform.say()
        await bot.catch_up.run()
        assert bot.taken == []
    assert {*bot.taken} == {first, second}
    assert bot.platform.reads.count("C1") == 2


async def test_a_new_gap_does_not_wait_for_the_pause_of_an_old_failure():
    bot = await after_a_stop(C1=UNAVAILABLE)
    missed = bot.platform.say()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.catch_up.run)
        await anyio.sleep(90)  # in the pause of five minutes
        bot.platform.refuses = {}
        await bot.catch_up.run()
        await anyio.sleep(0.1)
        assert bot.taken == [missed]


async def test_a_channel_that_cannot_be_read_now_waits_for_its_own_pause_and_not_for_all_the_others():
    bot = await after_a_stop(C1=UNAVAILABLE)
    bot.platform.pause = 1.0
    for number in range(2, 100):
        bot.marks.start(f"C{number}", "1.0", missed=True)
    missed = bot.platform.say()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.catch_up.run)
        await anyio.sleep(4)
        bot.platform.refuses = {}
        await anyio.sleep(6)  # the first pause, and a call
        assert missed in bot.taken


async def test_messages_that_a_full_disk_refuses_do_not_hurry_the_catch_up():
    bot = await after_a_stop()
    bot.full = True
    async with anyio.create_task_group() as tasks:
        for _ in range(200):
            with pytest.raises(StoreUnavailable), bot.marks.taking("C1", bot.platform.say()):
                raise StoreUnavailable
            tasks.start_soon(partial(bot.catch_up.run, gap=False))
            await anyio.sleep(0.5)
        assert bot.platform.reads.count("C1") <= 4  # at 0, 5, 20 and 80 s
        bot.full = False
    assert len(bot.taken) == 200


async def test_a_live_message_does_not_move_the_mark_past_what_is_still_to_be_read():
    bot = await after_a_stop()
    missed, live = bot.platform.say(), bot.platform.say()
    bot.marks.move("C1", live)
    assert await bot.mark() < float(missed)
    again = Bot(bot.platform, bot.disk)  # killed in between
    await again.catch_up.run()
    assert again.taken == [missed, live]
    assert await again.mark() == float(live)


async def test_what_waits_after_many_failures_is_read_as_soon_as_the_store_is_back():
    bot = await after_a_stop()
    missed, bot.full = bot.platform.say(), True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.catch_up.run)
        await anyio.sleep(5 + 15 + 60 + 1)  # now it would wait for 300 s
        bot.full = False
        bot.catch_up.hurry()
        await anyio.sleep(1)
        assert bot.taken == [missed]


async def test_the_return_of_a_store_is_noticed_and_its_outage_logged_once(monkeypatch, caplog):
    bot, told, away = Bot(Platform()), [], True

    def take_over(_):
        if away:
            raise OSError("away")
        return ()

    monkeypatch.setattr(MarkFile, "take_over", take_over)
    bot.marks.on_store_back = lambda: told.append("back")
    async with background_tasks() as tasks:
        tasks.start_soon(bot.marks.keep, lambda: True)
        await anyio.sleep(60)
        assert caplog.text.count("marks.not_taken_over") == 1
        assert told == []
        away = False
        await anyio.sleep(60)
        assert told == ["back"]


async def test_a_channel_that_another_process_reads_is_waited_for_and_not_read_again(monkeypatch):
    bot, upto = await after_a_stop(), None
    missed = bot.platform.say()
    monkeypatch.setattr(MarkFile, "claim", lambda _, channel, *__: upto if channel == "C1" else "")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bot.catch_up.run)
        await anyio.sleep(60)
        assert bot.marks.due() == ["C1"]
        upto = missed
    assert "C1" not in bot.platform.reads
    assert bot.marks.mark_of("C1") == missed


async def test_other_processes_learn_what_was_read_and_what_nobody_can_read(monkeypatch):
    bot, finished = await after_a_stop(C2=TransportRejected("unread")), {}
    missed = bot.platform.say()
    monkeypatch.setattr(MarkFile, "finish", lambda _, channel, upto: finished.update({channel: upto}))
    await bot.catch_up.run()
    assert finished == {"C1": missed, "C2": NEVER}
