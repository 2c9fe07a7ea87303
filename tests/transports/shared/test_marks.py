"""No mark ever passes what was not handed over, on the scale of any platform."""

import json
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.memory import Memory, offload
from threads.errors import NewerSchema, StoreUnavailable
from threads.store.mark_file import MarkFile
from transports.discord.events.read_marks import SNOWFLAKES
from transports.shared.backfill.marks import UNKNOWN, UNNOTICED_S, Marks
from transports.shared.backfill.message_time import NEVER
from transports.slack.events.timestamps import STAMPS

FILE = Path("/data/marks.json")
START = 1.7e9
SCALES = {"stamps": STAMPS, "snowflakes": SNOWFLAKES}
scales = pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
seconds = st.integers(0, 10**6).map(lambda thousandths: thousandths / 1000)


def stamp(passed):
    return f"{START + passed:.6f}"


def moment(passed):
    return datetime.fromtimestamp(START + passed, UTC)


class Clock:
    """The time of marks, in seconds after the start."""

    def __init__(self, seconds=10):
        self.seconds = seconds

    def __call__(self):
        return moment(self.seconds)


def new_marks(scale=STAMPS, clock=None, disk=None, offload=offload):
    """Return the marks of a process that starts on this disk."""
    marks = Marks(MarkFile(disk or Memory(), FILE), offload, clock or Clock(), scale)
    marks.open()
    return marks


@scales
@given(seconds, seconds)
def test_times_are_ordered_as_the_moments_are(scale, one, other):
    assert scale.is_before(scale.at(moment(one)), scale.at(moment(other))) == (one < other)
    assert scale.later(scale.at(moment(one)), scale.at(moment(other))) == scale.at(moment(max(one, other)))
    assert scale.earlier(scale.at(moment(one)), scale.at(moment(other))) == scale.at(moment(min(one, other)))
    assert scale.before(scale.at(moment(one + other)), other) == scale.at(moment(one))


@scales
@given(seconds, st.floats(0, 1e12))
def test_what_lies_before_is_never_before_all_times(scale, one, long):
    message = scale.at(moment(one))
    assert scale.is_before(scale.just_before(message), message)
    assert not scale.is_before(scale.before(message, long), NEVER)
    assert scale.order(scale.just_before(NEVER)) == scale.order(NEVER)
    assert scale.order(scale.at(datetime(1970, 1, 1, tzinfo=UTC))) == scale.order(NEVER)


def test_nothing_lies_between_a_message_and_what_is_just_before_it():
    assert SNOWFLAKES.just_before("1174132406353920003") == "1174132406353920002"
    assert STAMPS.just_before("1700000000.000100") == "1700000000.000099"


@scales
def test_a_message_that_was_overtaken_holds_the_mark_too(scale):
    marks = new_marks(scale)
    overtaken, other = scale.at(moment(1)), scale.at(moment(2))
    marks.move("C1", other)
    with marks.taking("C1", overtaken):
        assert scale.is_before(marks.mark_of("C1"), overtaken)
    assert marks.mark_of("C1") == other
    with pytest.raises(StoreUnavailable), marks.taking("C1", overtaken):
        raise StoreUnavailable
    assert scale.is_before(marks.mark_of("C1"), overtaken)
    marks.close("C1", marks.gap_of("C1"))
    assert marks.mark_of("C1") == other
    marks.missed("C1", overtaken)
    assert scale.is_before(marks.mark_of("C1"), overtaken)
    assert marks.due() == ["C1"]


@scales
def test_a_gap_that_is_newer_stays_and_a_mark_that_is_not_due_is_not_moved_by_a_catch_up(scale):
    marks = new_marks(scale)
    marks.start("C1", began := marks.clock())
    later = scale.at(moment(9999))
    marks.reached("C1", later)
    assert marks.mark_of("C1") == began
    old, new = marks.gap(), marks.gap()
    marks.close("C1", old, later)
    assert marks.due() == ["C1"]
    assert marks.mark_of("C1") == began
    marks.close("C1", new, later)
    assert marks.due() == []
    assert marks.mark_of("C1") == later


@scales
def test_who_is_due_for_long_is_not_passed_for_ever_by_those_that_speak(scale):
    marks = new_marks(scale, clock := Clock(100_000))
    for channel, spoke in (("loud", 99_990), ("late", 99_900), ("still", 10)):
        marks.start(channel, scale.at(moment(spoke)))
    first = []
    for _ in range(12):
        marks.gap()
        first.append(marks.due()[0])
        marks.close(first[-1], marks.gap_of(first[-1]))
        clock.seconds += 45
        marks.move("loud", marks.clock())
    assert first[:3] == ["loud", "late", "loud"]
    assert first.index("still") == pytest.approx(300 / 45, abs=1)  # it waits for LONGEST_S more than they do


@scales
def test_a_gap_that_comes_while_a_channel_is_read_puts_it_at_the_end(scale):
    marks = new_marks(scale, clock := Clock(100_000))
    for channel in ("one", "two"):
        marks.start(channel, scale.at(moment(99_000)))
    old = marks.gap()
    [first, second] = marks.due()
    clock.seconds += 10
    marks.gap()
    marks.close(first, old)
    assert marks.due() == [second, first]


@pytest.mark.anyio
@scales
async def test_restarts_do_not_for_ever_begin_with_what_was_read_just_now(scale):
    disk, clock, read = Memory(), Clock(100_000), []
    for life in range(9):
        marks = new_marks(scale, clock, disk)
        if not life:
            for channel in ("one", "two", "three", "four", "five", "six"):
                marks.start(channel, scale.at(moment(99_000)))
            marks.gap()
        for channel in marks.due()[:2]:
            marks.close(channel, marks.gap_of(channel), marks.clock())
            read.append(channel)
        await marks.save()
        clock.seconds += 20
    assert set(read) == {"one", "two", "three", "four", "five", "six"}


@pytest.mark.anyio
@scales
async def test_a_gap_since_a_time_that_is_not_yet_is_one_since_now(scale):
    marks = new_marks(scale, Clock(500_000), disk := Memory())
    for channel in ("one", "two"):
        marks.start(channel, scale.at(moment(400_000)))
    marks.missed("one", scale.at(moment(450_000)))
    await marks.save()
    assert new_marks(scale, Clock(1_000), disk).due() == ["one", "two"], (
        "not the last, for being due since later than now"
    )


@pytest.mark.anyio
@scales
async def test_the_file_is_written_when_a_mark_moved_or_a_minute_passed(scale):
    disk, clock = Memory(), Clock()
    marks = new_marks(scale, clock, disk)
    marks.alive()
    for seconds, written in ((1, False), (60, True)):
        disk.files.clear()
        clock.seconds += seconds
        marks.alive()
        await marks.save()
        assert (FILE in disk.files) is written
    marks.move("C1", scale.at(moment(5)))
    await marks.save()
    assert new_marks(scale, clock, disk).mark_of("C1") == scale.at(moment(5))


@pytest.mark.anyio
async def test_a_write_that_fails_is_logged_and_tried_again(caplog):
    marks = new_marks(disk=(disk := Memory()))
    marks.move("C1", "1000.5")
    disk.broken = True
    await marks.save()
    assert "could not be written" in caplog.text
    disk.broken = False
    await marks.save()
    assert b"1000.5" in disk.files[FILE]


@pytest.mark.parametrize("content", [b"{", b'{"v":1,"alive_at":"1.0","channels":{"C1":"soon"}}'])
def test_a_damaged_file_is_put_aside_and_all_starts_at_now(content, caplog):
    marks = new_marks(disk=(disk := Memory({FILE: content})))
    assert marks.due() == []
    assert float(marks.alive_at) == START + 10
    assert content in disk.files[FILE.with_name(FILE.name + ".broken")]
    assert "put aside" in caplog.text


def test_a_file_of_a_newer_version_is_left_as_it_is():
    disk = Memory({FILE: (content := b'{"v":2,"alive_at":"1.0","channels":{}}')})
    with pytest.raises(NewerSchema, match="newer"):
        new_marks(disk=disk)
    assert disk.files == {FILE: content}


def test_when_there_are_too_many_channels_those_that_spoke_last_are_followed(monkeypatch, caplog):
    monkeypatch.setattr("transports.shared.backfill.marks.MOST_CHANNELS", 2)
    marks = new_marks()
    for channel, ts in (("C1", "1.5"), ("C2", "3.5"), ("C3", "2.5")):
        marks.move(channel, ts)
    assert "C1 is not followed" in caplog.text
    marks.gap()
    assert marks.due() == ["C2", "C3"]


@pytest.fixture
def followed():
    """Marks that have closed a gap at 600 s, when the link came up again."""
    marks = new_marks(clock=(clock := Clock(0)))
    clock.seconds = 600
    for _ in ("start", "link up again"):
        marks.close(UNKNOWN, marks.gap())
    return marks


def test_a_channel_whose_first_message_is_older_than_the_link_is_read_from_there_on(followed):
    early, late = (stamp(seconds) for seconds in (605, 500))
    assert not followed.begins_late("C2", early)
    assert followed.begins_late("C3", late)
    assert followed.due() == ["C3"]
    assert not followed.begins_late("C3", late)


@pytest.mark.parametrize(("channel", "since"), [("D3", 480), ("C3", 500)])
def test_a_dm_that_is_first_heard_of_late_is_read_since_we_were_last_alive(followed, channel, since):
    """Nobody has looked for new DMs since: something may have been said there before."""
    followed.alive()
    followed.gap()
    assert followed.begins_late(channel, stamp(500))
    assert float(followed.mark_of(channel)) == pytest.approx(START + since, abs=0.001)
    assert followed.due() == [channel]


def test_what_another_process_left_is_read_since_it_was_last_alive_or_since_its_gap(followed):
    followed.alive()
    followed.move("C1", stamp(590))
    followed.move("C2", stamp(590))
    left = {"C1": stamp(100), "C2": stamp(700), "C3": stamp(100), "C4": stamp(800)}
    body = {"first_at": stamp(0), "alive_at": stamp(500), "channels": left, "due": {"C3": stamp(400)}}
    followed.take_over(json.dumps(body).encode())
    assert {channel: float(followed.mark_of(channel)) - START for channel in left} == {
        "C1": 500 - UNNOTICED_S,  # nothing was missed there before
        "C2": pytest.approx(590, abs=0.001),
        "C3": 100,
        "C4": 800,
    }
    assert sorted(followed.due()) == sorted(left)
    assert followed.gap_of(UNKNOWN)
    assert float(followed.alive_at) == START + 500 - UNNOTICED_S


def test_what_another_process_left_damaged_ends_nothing(followed, caplog):
    followed.take_over(b"{")
    assert followed.due() == []
    assert "cannot be understood" in caplog.text


def test_a_join_that_is_reported_late_is_read_from_then_on(followed):
    followed.move("C2", stamp(600))
    followed.joined("C2", stamp(100))
    assert followed.due() == ["C2"]
    assert float(followed.mark_of("C2")) == START + 100


def test_a_channel_that_was_left_starts_at_now_when_it_is_joined_again(followed):
    followed.move("C1", stamp(100))
    followed.drop("C1")
    followed.gap()
    followed.move("C1", stamp(599))
    assert float(followed.mark_of("C1")) > START + 598


def test_a_time_that_is_not_yet_does_not_end_the_catching_up(followed):
    followed.move("C2", f"{START:.6f}")
    for channel in ("C1", "C2"):
        followed.move(channel, "9999999999.000001")
        assert float(followed.mark_of(channel)) <= START + 600 + 3600


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["take", "begin", "end", "refuse", "miss", "lose", "gap", "look", "part", "close", "save", "kill"]
        ),
        st.sampled_from(["C1", "C2"]),
    ),
    max_size=40,
)


class Story:
    """Two channels that are followed; *said* are all messages of each, *handed* those that were handed over."""

    def __init__(self, scale):
        self.scale, self.disk, self.clock = scale, Memory(), Clock(0)
        self.said, self.handed = {"C1": [], "C2": []}, set()
        self.open()
        for channel in self.said:
            self.marks.start(channel, self.marks.clock())

    def open(self):
        self.marks = new_marks(self.scale, self.clock, self.disk)
        self.held, self.looks = {}, {}

    def say(self, channel):
        self.clock.seconds += 1
        self.said[channel].append(message := self.marks.clock())
        return message

    def take(self, channel):
        message = self.say(channel)
        self.handed.add(message)
        self.marks.move(channel, message)

    def begin(self, channel):
        if channel not in self.held:
            stack, message = ExitStack(), self.say(channel)
            stack.enter_context(self.marks.taking(channel, message))
            self.held[channel] = stack, message

    def end(self, channel):
        if channel in self.held:
            stack, message = self.held.pop(channel)
            self.handed.add(message)
            stack.close()

    def refuse(self, channel):
        if channel in self.held:
            stack, _ = self.held.pop(channel)
            with pytest.raises(StoreUnavailable), stack:
                raise StoreUnavailable

    def miss(self, channel):
        self.marks.missed(channel, self.say(channel))

    def lose(self, channel):
        self.say(channel)
        self.marks.gap()

    def gap(self, channel):
        self.marks.gap()

    def look(self, channel):
        """A catch-up begins to read."""
        if gap := self.marks.gap_of(channel):
            mark = self.marks.mark_of(channel)
            found = [message for message in self.said[channel] if self.scale.is_before(mark, message)]
            self.looks[channel] = gap, found

    def part(self, channel):
        """It has handed over the first half."""
        _, found = self.looks.get(channel, (0, []))
        if half := found[: len(found) // 2]:
            self.handed.update(half)
            self.marks.reached(channel, half[-1])

    def close(self, channel):
        if channel in self.looks:
            gap, found = self.looks.pop(channel)
            self.handed.update(found)
            self.marks.close(channel, gap, found[-1] if found else NEVER)

    def save(self, channel):
        anyio.run(self.marks.save)

    def kill(self, channel):
        anyio.run(self.marks.save)
        self.open()

    def check(self):
        for channel, said in self.said.items():
            missing = [message for message in said if message not in self.handed]
            assert all(self.scale.is_before(self.marks.mark_of(channel), message) for message in missing)


@scales
@given(STEPS)
def test_whatever_happens_no_mark_passes_what_was_not_handed_over(scale, steps):
    story = Story(scale)
    for step, channel in steps:
        getattr(story, step)(channel)
        story.check()
    for channel, said in story.said.items():
        story.end(channel)
        story.look(channel)
        story.close(channel)
        assert {*said} <= story.handed
        assert story.marks.mark_of(channel) == max([story.marks.mark_of(channel), *said], key=scale.order)
    assert story.marks.due() == []


@pytest.mark.anyio
@pytest.mark.parametrize("opened_again", [False, True], ids=["a new channel", "a start"])
async def test_who_waits_for_the_file_to_know_a_channel_is_not_overtaken(opened_again):
    """The worker thread says that it has written before those who wait for that go on."""
    turns: list[anyio.Event] = []

    async def on_demand(function, *arguments):
        turns.append(anyio.Event())
        function(*arguments)
        await turns[-1].wait()

    async def note(name):
        await marks.note()
        noted.append(name)

    disk, noted = Memory(), []
    if opened_again:
        new_marks(clock=Clock(0), disk=disk)
    marks = new_marks(disk=disk, offload=on_demand)
    marks.start("C1", STAMPS.at(moment(1)))
    async with anyio.create_task_group() as tasks:
        for name in ("first", "second"):
            tasks.start_soon(note, name)
        await anyio.wait_all_tasks_blocked()
        assert not marks.unwritten
        tasks.start_soon(note, "third")
        await anyio.wait_all_tasks_blocked()
        assert noted == []
        turns[0].set()
        tasks.start_soon(note, "fourth")
        await anyio.wait_all_tasks_blocked()
    assert noted == ["first", "second", "third", "fourth"]
    assert len(turns) == 1
