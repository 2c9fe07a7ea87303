"""Scheduled messages from end to end, in virtual time: a whole bot, real storage, and processes that die."""

import json
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from bot.config.settings import Recovery
from bot.ports.errors import ToolDenied
from bot.schedules.scheduler import Scheduler
from bot.schedules.store import RETURN, Schedule, ScheduleLimits, Schedules, SchedulesFile
from tests.sim.loop import virtual_time
from tests.world import (
    ANN,
    T1,
    T2,
    FaultyDisk,
    Gate,
    Platform,
    Scripted,
    calls,
    message,
    running,
    says,
    state_file,
)
from threads.background import background_tasks
from threads.errors import StoreUnavailable, TransportRejected, TransportUnavailable
from threads.model import Author, TurnLimits
from threads.scheduled_messages import due_of, headings, scheduled_id
from threads.store.disk import PosixDisk

START = datetime(2026, 11, 22, 11, tzinfo=UTC)
BOB = Author("U2", "bob")
FIRST = 1_000.0


anyio_backend = virtual_time


class WallClock:
    """A clock clock that follows the loop's, and can be set."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return START + timedelta(seconds=anyio.current_time() - FIRST) + self.ahead


@pytest.fixture
def clock():
    return WallClock()


def at(**ahead: float) -> datetime:
    return START + timedelta(**ahead)


def once(text: str = "Tell me.", *, thread=T1, author=ANN, source: str = "", **ahead: float) -> Schedule:
    return Schedule(thread=str(thread), author=author, text=text, next_at=at(**ahead), source=source or text)


def hourly(text: str = "Tell me.", **more: object) -> Schedule:
    return once(text, hours=1).model_copy(update={"cron": "0 * * * *", "until": at(days=300), **more})


class Bot:
    def __init__(self, core, platform, schedules, notices):
        self.core, self.platform, self.schedules, self.notices = core, platform, schedules, notices

    @property
    def answered(self) -> list[str]:
        return [post.reply_to for post in self.platform.posts if due_of(post.reply_to)]

    def occurrence(self, schedule: Schedule, **ahead: float) -> str:
        return scheduled_id(schedule.id, at(**ahead))


@asynccontextmanager
async def running_bot(
    data,
    platform=None,
    model=None,
    *,
    clock=None,
    disk=None,
    allowed: Callable[[object], bool] = lambda _: True,
    may_spend: Callable[[], bool] = lambda: True,
    post_errors=None,
    served=("fake",),
    schedule_limits=ScheduleLimits(),
    **options,
):
    platform, clock, disk = platform or Platform(), clock or WallClock(), disk or PosixDisk()
    notices, recovery = [], Recovery(max_age_s=600)

    async def post_notice(outgoing):
        if post_errors:
            raise post_errors.pop(0)
        notices.append(outgoing)

    schedules = Schedules(state_file(data / "schedules.json", SchedulesFile(), disk), clock, schedule_limits)
    schedules.read_zones()
    async with running(
        data, platform, model or Scripted(), clock=clock, disk=disk, recovery=recovery, **options
    ) as core:
        scheduler = Scheduler(
            schedules,
            core.orchestrator.receive,
            core.journal.knows,
            allowed,
            may_spend,
            post_notice,
            served,
            recovery.max_age_s,
        )
        async with background_tasks() as tasks:
            tasks.start_soon(scheduler.run)
            yield Bot(core, platform, schedules, notices)


async def test_a_schedule_is_answered_at_its_time_as_a_message_of_its_author(tmp_path):
    model = Scripted(says("Here it is."))
    async with running_bot(tmp_path, model=model) as bot:
        schedule = await bot.schedules.add(once("/approve", minutes=10))
        await anyio.sleep(599)
        assert bot.platform.posts == []
        await anyio.sleep(2)
        assert bot.answered == [bot.occurrence(schedule, minutes=10)]
        assert "/approve" in model.requests[0].messages[-1].text
        assert "ann (U1), 2026-11-22 11:10 UTC" in model.requests[0].messages[-1].text
        assert "scheduled earlier for now" in model.requests[0].messages[-1].text
        assert bot.platform.texts == ["⏰ Scheduled by ann: /approve\n\nHere it is."]
        assert bot.schedules.all == ()


@pytest.mark.parametrize("end", [{"times": 3}, {"until": at(hours=3)}], ids=["times", "until"])
async def test_a_repeated_schedule_comes_once_at_each_time_until_its_end(tmp_path, end):
    async with running_bot(tmp_path) as bot:
        schedule = await bot.schedules.add(hourly(**end))
        await anyio.sleep(6 * 3600)
        assert bot.answered == [bot.occurrence(schedule, hours=n) for n in (1, 2, 3)]
        assert bot.schedules.all == ()


async def test_two_that_are_due_at_once_both_come_in_the_order_of_their_ids(tmp_path):
    gate = Gate(says("first"))
    async with running_bot(tmp_path, model=Scripted(gate)) as bot:
        await bot.schedules.add(once("one", minutes=1))
        await bot.schedules.add(once("two", minutes=1))
        await bot.schedules.add(once("elsewhere", minutes=1, thread=T2))
        await anyio.sleep(61)
        await gate.began.wait()
        gate.open.set()
        await anyio.sleep(5)
        assert len(bot.answered) == len(set(bot.answered)) == 3


@pytest.mark.parametrize(("busy", "outcome"), [("steer", "merged"), ("queue", "answered")])
async def test_in_a_busy_thread_it_waits_or_joins_as_any_message_does(tmp_path, busy, outcome):
    gate = Gate(calls("list_files", path="."))
    model, limits = Scripted(gate, says("both")), TurnLimits(busy=busy)
    async with running_bot(tmp_path, model=model, limits=limits) as bot:
        schedule = await bot.schedules.add(once(minutes=1))
        await gate.hold(bot.core, message(1))
        await anyio.sleep(61)
        gate.open.set()
        due = bot.occurrence(schedule, minutes=1)
        await bot.platform.settled("m1", due)
        assert bot.platform.outcomes[due] == outcome


async def test_it_survives_a_restart_and_comes_at_its_time(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock) as bot:
        schedule = await bot.schedules.add(once(minutes=10))
    clock.ahead += timedelta(minutes=5)
    async with running_bot(tmp_path, clock=clock) as bot:
        await anyio.sleep(301)
        assert bot.answered == [bot.occurrence(schedule, minutes=10)]


async def test_of_recent_missed_occurrences_the_last_comes_late(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock) as bot:
        schedule = await bot.schedules.add(hourly())
        single = await bot.schedules.add(once("late", hours=4, minutes=58))
    clock.ahead += timedelta(hours=5, minutes=5)
    async with running_bot(tmp_path, clock=clock) as bot:
        await anyio.sleep(30)
        assert sorted(bot.answered) == sorted(
            [bot.occurrence(schedule, hours=5), bot.occurrence(single, hours=4, minutes=58)]
        )
        assert bot.notices == []
        assert [s.next_at for s in bot.schedules.all] == [at(hours=6)]


async def test_a_parked_playbook_comes_back_however_late(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock) as bot:
        schedule = await bot.schedules.add(
            once("/play retry two", source=f"r{RETURN}1", minutes=15).model_copy(update={"play": True})
        )
    clock.ahead += timedelta(days=2)
    async with running_bot(tmp_path, clock=clock) as bot:
        await anyio.sleep(30)
        assert bot.answered == [scheduled_id(schedule.id, at(minutes=15), command=True)]
        assert bot.notices == []


async def test_older_missed_occurrences_are_named_in_one_notice_per_thread(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock) as bot:
        schedule = await bot.schedules.add(hourly("Count the\nsheep."))
        single = await bot.schedules.add(once("late", minutes=30))
        await bot.schedules.add(once("elsewhere", minutes=30, thread=T2))
    clock.ahead += timedelta(hours=5, minutes=30)
    async with running_bot(tmp_path, clock=clock) as bot:
        await anyio.sleep(30)
        assert bot.answered == []
        note = next(notice for notice in bot.notices if notice.thread == T1)
        assert len(bot.notices) == 2
        assert f"“Count the sheep.” ({schedule.id}) of Sun 22 Nov 12:00 UTC" in note.text
        assert "Next on Sun 22 Nov 17:00 UTC." in note.text
        assert f"“late” ({single.id})" in note.text
        assert "It will not come again." in note.text
        assert [s.id for s in bot.schedules.all] == [schedule.id]
        await anyio.sleep(1900)
        assert bot.answered == [bot.occurrence(schedule, hours=6)]
        assert len(bot.notices) == 2


async def test_a_notice_that_fails_is_posted_later_and_nothing_is_dropped(tmp_path, clock):
    post_errors = [TransportUnavailable("down"), TransportUnavailable("down")]
    async with running_bot(tmp_path, clock=clock) as bot:
        await bot.schedules.add(once(minutes=1))
        await bot.schedules.add(once("another one", hours=2))
    clock.ahead += timedelta(hours=1)
    async with running_bot(tmp_path, clock=clock, post_errors=post_errors) as bot:
        await anyio.sleep(70)
        assert (bot.notices, len(bot.schedules.all)) == ([], 2)
        await anyio.sleep(3600)
        assert len(bot.notices) == 1
        assert len(bot.answered) == 1  # nobody else waits for that


async def test_a_worker_that_lost_its_role_in_the_middle_of_a_notice_goes_on_once_it_has_it_again(
    tmp_path, clock
):
    told = []

    async def post_notice(outgoing):
        told.append(outgoing.key)
        if len(told) == 1:
            await anyio.sleep_forever()  # as a post does while the lease is not sure

    schedules = Schedules(state_file(tmp_path / "schedules.json", SchedulesFile(), PosixDisk()), clock)
    await schedules.add(once(minutes=1))
    clock.ahead += timedelta(hours=1)

    async def unused(_):
        return False

    allowed, within_budget = (lambda _: True), (lambda: True)
    scheduler = Scheduler(schedules, unused, unused, allowed, within_budget, post_notice, ["fake"], 600)
    for _ in range(2):
        with anyio.move_on_after(10):
            await scheduler.run()
    assert (len(told), len(set(told)), schedules.all) == (2, 1, ())


async def test_a_notice_that_is_rejected_is_given_up(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock) as bot:
        await bot.schedules.add(once(minutes=1))
    clock.ahead += timedelta(hours=1)
    async with running_bot(tmp_path, clock=clock, post_errors=[TransportRejected("gone")]) as bot:
        await anyio.sleep(10)
        assert (bot.notices, bot.schedules.all) == ([], ())


async def test_a_person_without_access_sends_nothing_and_the_thread_is_told_once(tmp_path):
    served = {"U2"}
    async with running_bot(tmp_path, allowed=lambda incoming: incoming.author.id in served) as bot:
        mine = await bot.schedules.add(hourly())
        theirs = await bot.schedules.add(hourly("theirs", author=BOB))
        await anyio.sleep(3 * 3600 + 10)
        assert bot.answered == [bot.occurrence(theirs, hours=n) for n in (1, 2, 3)]
        assert len(bot.notices) == 1
        assert "may not use me here any more" in bot.notices[0].text
        served.add("U1")
        await anyio.sleep(3600)
        assert bot.occurrence(mine, hours=4) in bot.answered


async def test_over_the_budget_nothing_is_sent_and_each_thread_is_told_once_a_day(tmp_path):
    budget = [False]
    async with running_bot(tmp_path, may_spend=lambda: budget[0]) as bot:
        await bot.schedules.add(hourly())
        await bot.schedules.add(hourly("other", source="other"))
        await anyio.sleep(5 * 3600)
        assert [
            ("budget for today" in notice.text, notice.text.count("Left out")) for notice in bot.notices
        ] == [(True, 2)]
        await anyio.sleep(12 * 3600)  # the next day
        assert len(bot.notices) == 2
        await bot.schedules.add(once("only now", hours=17, minutes=30))
        await anyio.sleep(3600)
        assert "only now" in bot.notices[2].text
        assert bot.answered == []
        budget[0] = True
        await anyio.sleep(3600)
        assert len(bot.answered) == 2


async def test_a_clock_that_goes_back_sends_nothing_twice_and_stops_nothing(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock) as bot:
        schedule = await bot.schedules.add(hourly(times=4))
        await anyio.sleep(3601)
        clock.ahead -= timedelta(minutes=30)
        await anyio.sleep(3601)
        assert bot.answered == [bot.occurrence(schedule, hours=1)]
        await anyio.sleep(1800)
        assert bot.answered[1:] == [bot.occurrence(schedule, hours=2)]
        assert bot.schedules.all[0].times == 2


async def test_a_clock_that_was_a_year_ahead_for_a_while_does_not_stop_a_schedule_for_a_year(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock) as bot:
        await bot.schedules.add(hourly())
        await anyio.sleep(1)
        clock.ahead += timedelta(days=200)
        await anyio.sleep(120)
        assert len(bot.notices) == 1 or len(bot.answered) == 1
        clock.ahead -= timedelta(days=200)
        await anyio.sleep(3600)
        assert any(one.endswith(str(int(at(hours=1).timestamp()))) for one in bot.answered)


async def test_a_machine_that_was_suspended_notices_within_a_minute(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock) as bot:
        schedule = await bot.schedules.add(once(hours=3))
        await anyio.sleep(5)
        clock.ahead += timedelta(hours=3)
        await anyio.sleep(61)
        assert bot.answered == [bot.occurrence(schedule, hours=3)]


async def test_a_zone_whose_rules_changed_moves_what_comes_next_and_one_that_is_gone_does_no_harm(
    tmp_path, clock
):
    async with running_bot(tmp_path, clock=clock) as bot:
        await bot.schedules.add(hourly())
        await bot.schedules.add(hourly("gone", zone="Gone/Away", source="gone"))
    path = tmp_path / "schedules.json"
    saved = json.loads(path.read_text())
    saved["schedules"][0]["next_at"] = at(minutes=45).isoformat()  # as other rules had it
    path.write_text(json.dumps(saved))
    async with running_bot(tmp_path, clock=clock) as bot:
        await anyio.sleep(1)
        assert bot.schedules.all[0].next_at == at(hours=1)
        await anyio.sleep(3700)
        assert len(bot.answered) == 2
        assert [s.text for s in bot.schedules.all] == ["Tell me."]


async def test_schedules_of_a_transport_that_does_not_run_rest(tmp_path, clock):
    async with running_bot(tmp_path, clock=clock, served=("another",)) as bot:
        await bot.schedules.add(once(minutes=1))
        await anyio.sleep(3 * 3600)
        assert (bot.answered, bot.notices, len(bot.schedules.all)) == ([], [], 1)


async def test_a_cancelled_schedule_does_not_come_and_another_thread_cannot_cancel(tmp_path):
    async with running_bot(tmp_path) as bot:
        schedule = await bot.schedules.add(once(minutes=1))
        assert await bot.schedules.cancel(T2, schedule.id) is None
        assert (await bot.schedules.cancel(T1, schedule.id)) == schedule
        assert await bot.schedules.cancel(T1, schedule.id) is None
        await anyio.sleep(120)
        assert bot.answered == []


async def test_a_disk_that_fails_delays_a_message_and_doubles_none(tmp_path):
    disk = FaultyDisk()
    async with running_bot(tmp_path, disk=disk) as bot:
        for number, refused in enumerate(("create", "append", "write", "create schedules.json.tmp")):
            await bot.schedules.add(once(refused, minutes=5 * number + 1))
            disk.refuse[refused] = OSError(28, "full")
            with suppress(StoreUnavailable):
                await bot.schedules.add(once("no promise", thread=T2, days=5))
            await anyio.sleep(270)
            disk.refuse.clear()
            await anyio.sleep(30)
            assert len(bot.answered) == len(set(bot.answered)) == number + 1


class ProcessDied(BaseException):
    """The process was killed."""


class CrashingDisk(PosixDisk):
    """Kills the process at its n-th change of the disk, before the change or after it."""

    def __init__(self, after: int, *, done: bool) -> None:
        self.left, self.done = after, done

    def change(self, work, *args):
        self.left -= 1
        if self.left == 0 and self.done:
            work(*args)
        if self.left <= 0:
            raise ProcessDied
        return work(*args)

    def create(self, path):
        return CrashingFile(self, super().create(path))

    def append(self, path):
        return CrashingFile(self, super().append(path))

    def rename(self, source, target):
        self.change(super().rename, source, target)

    def fsync_folder(self, path):
        """Done: a killed process loses nothing that the kernel has."""


class CrashingFile:
    def __init__(self, disk, file):
        self._disk, self._file = disk, file
        self.close = file.close

    def write(self, data):
        return self._disk.change(self._file.write, data)

    def fsync(self):
        self._disk.change(lambda: None)  # a killed process loses nothing that the kernel has


async def crashes(folder, *schedules, down=timedelta(), done=True, seconds):
    """Yield, for a crash at each change of the disk, its number, the data, the platform, the schedules and the clock.

    A first process makes the schedules; after *down*, a second one runs for *seconds* or until it crashes.
    """
    for crash in range(1, 80):
        data, platform, clock = folder / str(crash), Platform(), WallClock()
        clock.ahead = START - clock()
        async with running_bot(data, platform, clock=clock, disk=CrashingDisk(10**6, done=True)) as bot:
            made = [await bot.schedules.add(schedule) for schedule in schedules]
        clock.ahead += down
        disk = CrashingDisk(crash, done=done)
        with suppress(BaseExceptionGroup, ProcessDied):
            async with running_bot(data, platform, clock=clock, disk=disk) as bot:
                await anyio.sleep(seconds)
        yield crash, data, platform, made, clock
        if disk.left > 0:
            return
    raise AssertionError("it always crashed")


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("later", [0, 3 * 3600])
async def test_wherever_the_process_is_killed_it_is_answered_once_and_goes_on(tmp_path, done, later):
    runs = crashes(tmp_path, hourly(times=5), once("once", hours=1), done=done, seconds=2 * 3600 - 60)
    async for crash, data, platform, (schedule, single), clock in runs:
        clock.ahead += timedelta(seconds=later)
        async with running_bot(data, platform, clock=clock, disk=CrashingDisk(10**6, done=True)) as bot:
            await anyio.sleep(max(1.0, (at(hours=5, minutes=30) - clock()).total_seconds()))
            ids = [bot.occurrence(schedule, hours=n) for n in range(1, 6)]
            keys = [post.key for post in platform.posts if post.kind == "reply"]
            assert len(keys) == len(set(keys)), (crash, keys)
            replied = {post.reply_to for post in platform.posts}
            notes = "".join(notice.text for notice in bot.notices)
            assert (bot.occurrence(single, hours=1) in replied) != (f"({single.id})" in notes), crash
            assert (replied & {*ids}) or f"({schedule.id})" in notes, crash
            if not later:
                assert {*ids} <= replied, (crash, replied)
                assert bot.schedules.all == ()


async def test_an_occurrence_that_came_late_is_not_reported_as_missed_wherever_the_process_is_killed(
    tmp_path,
):
    runs = crashes(tmp_path, hourly(), down=timedelta(hours=5, minutes=5), seconds=30)
    async for crash, data, platform, (schedule,), clock in runs:
        clock.ahead += timedelta(hours=1, minutes=30)
        async with running_bot(data, platform, clock=clock, disk=CrashingDisk(10**6, done=True)) as bot:
            await anyio.sleep(60)
            made_up = bot.occurrence(schedule, hours=5) in {post.reply_to for post in platform.posts}
            missed = [notice.text.partition(" UTC")[0][-5:] for notice in bot.notices]
            assert missed == ["17:00"] if made_up else missed[0] in ("12:00", "16:00"), crash


async def test_there_is_a_limit_per_thread_and_person_and_in_all(tmp_path):
    async with running_bot(tmp_path, schedule_limits=ScheduleLimits(3, 2, 4)) as bot:
        add = bot.schedules.add
        await add(once("1", hours=1))
        again = await add(once("1", hours=1))
        assert len(bot.schedules.all) == 1
        assert again == bot.schedules.all[0]
        await add(once("2", hours=1))
        with pytest.raises(ToolDenied, match="of this person"):
            await add(once("3", hours=1, thread=T2))
        await add(once("4", hours=1, author=BOB))
        with pytest.raises(ToolDenied, match="in this thread"):
            await add(once("5", hours=1, author=Author("U3")))
        await add(once("6", hours=1, author=Author("U3"), thread=T2))
        with pytest.raises(ToolDenied, match="in all"):
            await add(once("7", hours=1, author=Author("U3"), thread=T2))


NOWHERE = {"thread": "x", "author": {"id": "U1"}, "text": "hi", "next_at": "2026-11-22T12:00:00Z"}


@pytest.mark.parametrize("rest", ['[{"thread": "x"', f"[{json.dumps(NOWHERE)}]}}"])
async def test_a_damaged_file_is_put_aside_and_the_bot_starts(tmp_path, rest):
    (tmp_path / "schedules.json").write_text(f'{{"v": 1, "schedules": {rest}')
    async with running_bot(tmp_path) as bot:
        assert bot.schedules.all == ()
        assert (tmp_path / "schedules.json.broken").exists()


def test_an_answer_begins_with_what_it_answers_in_one_line_that_is_not_long():
    asked = (
        once("Tell\n\n# me " + "x" * 999, hours=1).model_copy(update={"id": "s1234"}).incoming(at(hours=1))
    )
    (heading,) = headings(asked)
    assert heading.startswith("⏰ Scheduled by ann: Tell # me xxx")
    assert len(heading) < 300
    assert "\n" not in heading
    assert headings(message(1)) == []


@pytest.mark.parametrize(
    "id_", ["schedule-", "schedule-s1", "schedule-s1-", "schedule-S-1", "schedule-s-1x", "x-schedule-s-1"]
)
def test_only_our_own_ids_are_scheduled(id_):
    assert due_of(id_) is None


async def test_a_schedule_that_joins_a_turn_is_named_above_its_answer(tmp_path):
    gate = Gate(calls("list_files", path="."))
    platform, clock = Platform(), WallClock()
    async with running_bot(tmp_path, platform, Scripted(gate, says("Both.")), clock=clock) as bot:
        await bot.schedules.add(once("first", minutes=1))
        await bot.schedules.add(once("second", minutes=2))
        await anyio.sleep(130)
        gate.open.set()
        await anyio.sleep(10)
        assert platform.texts == ["⏰ Scheduled by ann: first\n\n⏰ Scheduled by ann: second\n\nBoth."]
