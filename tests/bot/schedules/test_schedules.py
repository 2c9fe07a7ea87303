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
from bot.schedules.store import NONE_HERE, Bounds, Schedule, Schedules, SchedulesFile
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
from threads.errors import StoreUnavailable, TransportRejected, TransportUnavailable
from threads.model import Author, Limits
from threads.scheduled_messages import due_of, headings, scheduled_id
from threads.store.disk import PosixDisk

START = datetime(2026, 11, 22, 11, tzinfo=UTC)
BOB = Author("U2", "bob")
FIRST = 1_000.0


anyio_backend = virtual_time


class Wall:
    """The wall clock: goes with the loop's, and can be set."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return START + timedelta(seconds=anyio.current_time() - FIRST) + self.ahead


@pytest.fixture
def wall():
    return Wall()


def at(**ahead: float) -> datetime:
    return START + timedelta(**ahead)


def once(text: str = "Tell me.", *, thread=T1, author=ANN, source: str = "", **ahead: float) -> Schedule:
    return Schedule(thread=str(thread), author=author, text=text, next_at=at(**ahead), source=source or text)


def hourly(text: str = "Tell me.", **more: object) -> Schedule:
    return once(text, hours=1).model_copy(update={"cron": "0 * * * *", "until": at(days=300), **more})


class Bot:
    def __init__(self, core, platform, schedules, told):
        self.core, self.platform, self.schedules, self.told = core, platform, schedules, told

    @property
    def answered(self) -> list[str]:
        return [post.reply_to for post in self.platform.posts if due_of(post.reply_to)]

    def occurrence(self, schedule: Schedule, **ahead: float) -> str:
        return scheduled_id(schedule.id, at(**ahead))


@asynccontextmanager
async def bot(
    data,
    platform=None,
    model=None,
    *,
    wall=None,
    disk=None,
    allowed: Callable[[object], bool] = lambda _: True,
    may_spend: Callable[[], bool] = lambda: True,
    refuse=None,
    served=("fake",),
    bounds=Bounds(),
    **options,
):
    platform, wall, disk = platform or Platform(), wall or Wall(), disk or PosixDisk()
    told, recovery = [], Recovery(max_age_s=600)

    async def tell(outgoing):
        if refuse:
            raise refuse.pop(0)
        told.append(outgoing)

    schedules = Schedules(state_file(data / "schedules.json", SchedulesFile(), disk), wall, bounds)
    schedules.read_zones()
    async with running(
        data, platform, model or Scripted(), clock=wall, disk=disk, recovery=recovery, **options
    ) as core:
        scheduler = Scheduler(
            schedules,
            core.orchestrator.receive,
            core.journal.knows,
            allowed,
            may_spend,
            tell,
            served,
            recovery.max_age_s,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.run)
            yield Bot(core, platform, schedules, told)
            tasks.cancel_scope.cancel()


async def test_what_is_due_is_answered_at_its_time_as_if_its_author_had_written_it(tmp_path):
    model = Scripted(says("Here it is."))
    async with bot(tmp_path, model=model) as here:
        schedule = await here.schedules.add(once("/approve", minutes=10))
        await anyio.sleep(599)
        assert here.platform.posts == []
        await anyio.sleep(2)
        assert here.answered == [here.occurrence(schedule, minutes=10)]
        assert "/approve" in model.requests[0].messages[-1].text
        assert "ann (U1), 2026-11-22 11:10 UTC" in model.requests[0].messages[-1].text
        assert "scheduled earlier for now" in model.requests[0].messages[-1].text
        assert here.platform.texts == ["⏰ Scheduled by ann: /approve\n\nHere it is."]
        assert here.schedules.all == ()


@pytest.mark.parametrize("end", [{"times": 3}, {"until": at(hours=3)}], ids=["times", "until"])
async def test_what_comes_again_and_again_comes_at_each_time_once_until_its_end(tmp_path, end):
    async with bot(tmp_path) as here:
        schedule = await here.schedules.add(hourly(**end))
        await anyio.sleep(6 * 3600)
        assert here.answered == [here.occurrence(schedule, hours=n) for n in (1, 2, 3)]
        assert here.schedules.all == ()


async def test_two_that_are_due_at_once_both_come_in_the_order_of_their_ids(tmp_path):
    held = Gate(says("first"))
    async with bot(tmp_path, model=Scripted(held)) as here:
        await here.schedules.add(once("one", minutes=1))
        await here.schedules.add(once("two", minutes=1))
        await here.schedules.add(once("elsewhere", minutes=1, thread=T2))
        await anyio.sleep(61)
        await held.began.wait()
        held.open.set()
        await anyio.sleep(5)
        assert len(here.answered) == len(set(here.answered)) == 3


@pytest.mark.parametrize(("busy", "outcome"), [("steer", "merged"), ("queue", "answered")])
async def test_in_a_busy_thread_it_waits_or_joins_as_any_message_does(tmp_path, busy, outcome):
    held = Gate(calls("list_files", path="."))
    model, limits = Scripted(held, says("both")), Limits(busy=busy)
    async with bot(tmp_path, model=model, limits=limits) as here:
        schedule = await here.schedules.add(once(minutes=1))
        await here.core.orchestrator.receive(message(1))
        await held.began.wait()
        await anyio.sleep(61)
        held.open.set()
        due = here.occurrence(schedule, minutes=1)
        await here.platform.settled("m1", due)
        assert here.platform.outcomes[due] == outcome


async def test_it_survives_a_restart_and_comes_at_its_time(tmp_path, wall):
    async with bot(tmp_path, wall=wall) as here:
        schedule = await here.schedules.add(once(minutes=10))
    wall.ahead += timedelta(minutes=5)
    async with bot(tmp_path, wall=wall) as here:
        await anyio.sleep(301)
        assert here.answered == [here.occurrence(schedule, minutes=10)]


async def test_what_was_missed_a_little_comes_late_and_only_the_last_of_it(tmp_path, wall):
    async with bot(tmp_path, wall=wall) as here:
        schedule = await here.schedules.add(hourly())
        single = await here.schedules.add(once("late", hours=4, minutes=58))
    wall.ahead += timedelta(hours=5, minutes=5)
    async with bot(tmp_path, wall=wall) as here:
        await anyio.sleep(30)
        assert sorted(here.answered) == sorted(
            [here.occurrence(schedule, hours=5), here.occurrence(single, hours=4, minutes=58)]
        )
        assert here.told == []
        assert [s.next_at for s in here.schedules.all] == [at(hours=6)]


async def test_what_was_missed_by_more_is_told_of_in_one_note_per_thread(tmp_path, wall):
    async with bot(tmp_path, wall=wall) as here:
        schedule = await here.schedules.add(hourly("Count the\nsheep."))
        single = await here.schedules.add(once("late", minutes=30))
        await here.schedules.add(once("elsewhere", minutes=30, thread=T2))
    wall.ahead += timedelta(hours=5, minutes=30)
    async with bot(tmp_path, wall=wall) as here:
        await anyio.sleep(30)
        assert here.answered == []
        note = next(one for one in here.told if one.thread == T1)
        assert len(here.told) == 2
        assert f"“Count the sheep.” ({schedule.id}) of Sun 22 Nov 12:00 UTC" in note.text
        assert "Next on Sun 22 Nov 17:00 UTC." in note.text
        assert f"“late” ({single.id})" in note.text
        assert "It will not come again." in note.text
        assert [s.id for s in here.schedules.all] == [schedule.id]
        await anyio.sleep(1900)
        assert here.answered == [here.occurrence(schedule, hours=6)]
        assert len(here.told) == 2


async def test_a_note_that_does_not_get_through_is_tried_again_and_nothing_is_dropped(tmp_path, wall):
    refuse = [TransportUnavailable("down"), TransportUnavailable("down")]
    async with bot(tmp_path, wall=wall) as here:
        await here.schedules.add(once(minutes=1))
        await here.schedules.add(once("another one", hours=2))
    wall.ahead += timedelta(hours=1)
    async with bot(tmp_path, wall=wall, refuse=refuse) as here:
        await anyio.sleep(70)
        assert (here.told, len(here.schedules.all)) == ([], 2)
        await anyio.sleep(3600)
        assert len(here.told) == 1
        assert len(here.answered) == 1  # nobody else waits for that


async def test_a_note_that_will_never_get_through_is_given_up(tmp_path, wall):
    async with bot(tmp_path, wall=wall) as here:
        await here.schedules.add(once(minutes=1))
    wall.ahead += timedelta(hours=1)
    async with bot(tmp_path, wall=wall, refuse=[TransportRejected("gone")]) as here:
        await anyio.sleep(10)
        assert (here.told, here.schedules.all) == ([], ())


async def test_whoever_lost_access_sends_nothing_any_more_and_the_thread_is_told_once(tmp_path):
    served = {"U2"}
    async with bot(tmp_path, allowed=lambda incoming: incoming.author.id in served) as here:
        mine = await here.schedules.add(hourly())
        theirs = await here.schedules.add(hourly("theirs", author=BOB))
        await anyio.sleep(3 * 3600 + 10)
        assert here.answered == [here.occurrence(theirs, hours=n) for n in (1, 2, 3)]
        assert len(here.told) == 1
        assert "may not use me here any more" in here.told[0].text
        served.add("U1")
        await anyio.sleep(3600)
        assert here.occurrence(mine, hours=4) in here.answered


async def test_with_nothing_left_to_spend_it_is_refused_and_that_is_said_once_a_day_and_thread(tmp_path):
    rich = [False]
    async with bot(tmp_path, may_spend=lambda: rich[0]) as here:
        await here.schedules.add(hourly())
        await here.schedules.add(hourly("other", source="other"))
        await anyio.sleep(5 * 3600)
        assert [("budget for today" in one.text, one.text.count("Left out")) for one in here.told] == [
            (True, 2)
        ]
        await anyio.sleep(12 * 3600)  # the next day
        assert len(here.told) == 2
        await here.schedules.add(once("only now", hours=17, minutes=30))
        await anyio.sleep(3600)
        assert "only now" in here.told[2].text
        assert here.answered == []
        rich[0] = True
        await anyio.sleep(3600)
        assert len(here.answered) == 2


async def test_a_clock_that_goes_back_sends_nothing_twice_and_stops_nothing(tmp_path, wall):
    async with bot(tmp_path, wall=wall) as here:
        schedule = await here.schedules.add(hourly(times=4))
        await anyio.sleep(3601)
        wall.ahead -= timedelta(minutes=30)
        await anyio.sleep(3601)
        assert here.answered == [here.occurrence(schedule, hours=1)]
        await anyio.sleep(1800)
        assert here.answered[1:] == [here.occurrence(schedule, hours=2)]
        assert here.schedules.all[0].times == 2


async def test_a_clock_that_was_a_year_ahead_for_a_while_does_not_stop_a_schedule_for_a_year(tmp_path, wall):
    async with bot(tmp_path, wall=wall) as here:
        await here.schedules.add(hourly())
        await anyio.sleep(1)
        wall.ahead += timedelta(days=200)
        await anyio.sleep(120)
        assert len(here.told) == 1 or len(here.answered) == 1
        wall.ahead -= timedelta(days=200)
        await anyio.sleep(3600)
        assert any(one.endswith(str(int(at(hours=1).timestamp()))) for one in here.answered)


async def test_a_machine_that_was_suspended_notices_within_a_minute(tmp_path, wall):
    async with bot(tmp_path, wall=wall) as here:
        schedule = await here.schedules.add(once(hours=3))
        await anyio.sleep(5)
        wall.ahead += timedelta(hours=3)
        await anyio.sleep(61)
        assert here.answered == [here.occurrence(schedule, hours=3)]


async def test_a_zone_whose_rules_changed_moves_what_comes_next_and_one_that_is_gone_does_no_harm(
    tmp_path, wall
):
    async with bot(tmp_path, wall=wall) as here:
        await here.schedules.add(hourly())
        await here.schedules.add(hourly("gone", zone="Gone/Away", source="gone"))
    path = tmp_path / "schedules.json"
    kept = json.loads(path.read_text())
    kept["schedules"][0]["next_at"] = at(minutes=45).isoformat()  # as other rules had it
    path.write_text(json.dumps(kept))
    async with bot(tmp_path, wall=wall) as here:
        await anyio.sleep(1)
        assert here.schedules.all[0].next_at == at(hours=1)
        await anyio.sleep(3700)
        assert len(here.answered) == 2
        assert [s.text for s in here.schedules.all] == ["Tell me."]
        assert "gone" not in here.schedules.listing(T1)


async def test_what_belongs_to_a_transport_that_does_not_run_here_rests(tmp_path, wall):
    async with bot(tmp_path, wall=wall, served=("another",)) as here:
        await here.schedules.add(once(minutes=1))
        await anyio.sleep(3 * 3600)
        assert (here.answered, here.told, len(here.schedules.all)) == ([], [], 1)


async def test_a_cancelled_one_does_not_come_and_nobody_cancels_what_is_elsewhere(tmp_path):
    async with bot(tmp_path) as here:
        schedule = await here.schedules.add(once(minutes=1))
        assert await here.schedules.cancel(T2, schedule.id) is None
        assert (await here.schedules.cancel(T1, schedule.id)) == schedule
        assert await here.schedules.cancel(T1, schedule.id) is None
        await anyio.sleep(120)
        assert here.answered == []


async def test_a_disk_that_refuses_delays_it_and_doubles_nothing(tmp_path):
    disk = FaultyDisk()
    async with bot(tmp_path, disk=disk) as here:
        for number, refused in enumerate(("create", "append", "write", "create schedules.json.tmp")):
            await here.schedules.add(once(refused, minutes=5 * number + 1))
            disk.refuse[refused] = OSError(28, "full")
            with suppress(StoreUnavailable):
                await here.schedules.add(once("no promise", thread=T2, days=5))
            await anyio.sleep(270)
            disk.refuse.clear()
            await anyio.sleep(30)
            assert len(here.answered) == len(set(here.answered)) == number + 1


class Died(BaseException):
    """The process is gone."""


class Dying(PosixDisk):
    """Lets the process die at its n-th change of the disk, before or after that happened."""

    def __init__(self, after: int, *, done: bool) -> None:
        self.left, self.done = after, done

    def _change(self, work, *given):
        self.left -= 1
        if self.left == 0 and self.done:
            work(*given)
        if self.left <= 0:
            raise Died
        return work(*given)

    def create(self, path):
        return DyingFile(self, super().create(path))

    def append(self, path):
        return DyingFile(self, super().append(path))

    def rename(self, source, target):
        self._change(super().rename, source, target)

    def fsync_folder(self, path):
        """Done: a killed process loses nothing that the kernel has."""


class DyingFile:
    def __init__(self, disk, file):
        self._disk, self._file = disk, file
        self.close = file.close

    def write(self, data):
        return self._disk._change(self._file.write, data)

    def fsync(self):
        self._disk._change(lambda: None)  # a killed process loses nothing that the kernel has


async def lives_that_end(folder, *schedules, down=timedelta(), done=True, seconds):
    """Yield, for a death at each change of the disk, the number of it, the data, what was scheduled and the clock.

    The schedules are made in a first life; the process is down for *down*, lives for *seconds*, and dies.
    """
    for deaths in range(1, 80):
        data, platform, wall = folder / str(deaths), Platform(), Wall()
        wall.ahead = START - wall()
        async with bot(data, platform, wall=wall, disk=Dying(10**6, done=True)) as here:
            made = [await here.schedules.add(schedule) for schedule in schedules]
        wall.ahead += down
        disk = Dying(deaths, done=done)
        with suppress(BaseExceptionGroup, Died):
            async with bot(data, platform, wall=wall, disk=disk) as here:
                await anyio.sleep(seconds)
        yield deaths, data, platform, made, wall
        if disk.left > 0:
            return
    raise AssertionError("it never lived")


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("later", [0, 3 * 3600])
async def test_wherever_the_process_is_killed_it_is_answered_once_and_goes_on(tmp_path, done, later):
    lives = lives_that_end(tmp_path, hourly(times=5), once("once", hours=1), done=done, seconds=2 * 3600 - 60)
    async for deaths, data, platform, (schedule, single), wall in lives:
        wall.ahead += timedelta(seconds=later)
        async with bot(data, platform, wall=wall, disk=Dying(10**6, done=True)) as here:
            await anyio.sleep(max(1.0, (at(hours=5, minutes=30) - wall()).total_seconds()))
            ids = [here.occurrence(schedule, hours=n) for n in range(1, 6)]
            keys = [post.key for post in platform.posts if post.kind == "reply"]
            assert len(keys) == len(set(keys)), (deaths, keys)
            asked = {post.reply_to for post in platform.posts}
            notes = "".join(one.text for one in here.told)
            assert (here.occurrence(single, hours=1) in asked) != (f"({single.id})" in notes), deaths
            assert (asked & {*ids}) or f"({schedule.id})" in notes, deaths
            if not later:
                assert {*ids} <= asked, (deaths, asked)
                assert here.schedules.all == ()


async def test_what_was_made_up_for_is_not_told_as_missed_wherever_the_process_is_killed(tmp_path):
    lives = lives_that_end(tmp_path, hourly(), down=timedelta(hours=5, minutes=5), seconds=30)
    async for deaths, data, platform, (schedule,), wall in lives:
        wall.ahead += timedelta(hours=1, minutes=30)
        async with bot(data, platform, wall=wall, disk=Dying(10**6, done=True)) as here:
            await anyio.sleep(60)
            made_up = here.occurrence(schedule, hours=5) in {post.reply_to for post in platform.posts}
            missed = [one.text.partition(" UTC")[0][-5:] for one in here.told]
            assert missed == ["17:00"] if made_up else missed[0] in ("12:00", "16:00"), deaths


async def test_there_is_a_limit_per_thread_and_person_and_in_all(tmp_path):
    async with bot(tmp_path, bounds=Bounds(3, 2, 4)) as here:
        add = here.schedules.add
        await add(once("1", hours=1))
        again = await add(once("1", hours=1))
        assert len(here.schedules.all) == 1
        assert again == here.schedules.all[0]
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
    async with bot(tmp_path) as here:
        assert here.schedules.all == ()
        assert (tmp_path / "schedules.json.broken").exists()


async def test_the_command_lists_and_cancels(tmp_path):
    async with bot(tmp_path) as here:
        command = here.schedules.command
        assert await command(T1, "") == NONE_HERE
        schedule = await here.schedules.add(hourly(zone="Europe/Berlin"))
        assert "next on Sun 22 Nov 13:00 Europe/Berlin" in await command(T1, "list")
        assert "no such" in await command(T2, f"cancel {schedule.id}")
        assert await command(T1, f"cancel {schedule.id.upper()}") == "Cancelled: Tell me."
        assert "/schedule cancel ID" in await command(T1, "dance")


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


async def test_one_that_joins_a_turn_is_said_above_that_answer(tmp_path):
    held = Gate(calls("list_files", path="."))
    platform, wall = Platform(), Wall()
    async with bot(tmp_path, platform, Scripted(held, says("Both.")), wall=wall) as here:
        await here.schedules.add(once("first", minutes=1))
        await here.schedules.add(once("second", minutes=2))
        await anyio.sleep(130)
        held.open.set()
        await anyio.sleep(10)
        assert platform.texts == ["⏰ Scheduled by ann: first\n\n⏰ Scheduled by ann: second\n\nBoth."]
