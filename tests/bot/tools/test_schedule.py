"""The tools that schedule, as the gate calls them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bot.routing.commands import parse
from bot.schedules.store import Schedules, SchedulesFile
from bot.tools.schedule import CancelSchedule, ListSchedules, ScheduleArguments, SetSchedule
from tests.sim.loop import virtual_time
from tests.tool_context import make_toolbox, tool_context, unheard
from tests.world import ANN, T1, T2, FaultyDisk, inline, state_file
from threads.model import Author, ToolCall

START = datetime(2026, 11, 22, 11, tzinfo=UTC)


anyio_backend = virtual_time


class Desk:
    """Somebody in a thread, and the three tools."""

    def __init__(self, folder) -> None:
        self.disk = FaultyDisk()
        state = state_file(folder / "schedules.json", SchedulesFile(), self.disk)
        self.schedules = Schedules(state, lambda: START)
        tools = [
            SetSchedule(self.schedules, inline, lambda text: parse(text) is not None, 15),
            ListSchedules(self.schedules),
            CancelSchedule(self.schedules),
        ]
        self.box = make_toolbox(tools)
        self.notes = []
        self.context = tool_context(folder, T1, ANN, "m1", note=self.notes.append)
        self.calls = 0

    async def call(self, name, /, *, context=None, **arguments):
        self.calls += 1
        call = ToolCall(f"c{self.calls}", name, arguments)
        [result] = await self.box.run([call], context or self.context, unheard)
        return json.loads(result.content)

    async def refused(self, **arguments):
        result = await self.call("schedule", **arguments)
        assert not result["success"]
        assert self.notes == []
        assert self.schedules.all == ()
        return result["error"]


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path)


async def test_what_is_scheduled_is_kept_said_in_the_thread_and_can_be_taken_back(desk):
    done = await desk.call(
        "schedule", text="Water the plants.", cron="0 9 * * 1-5", zone="europe/berlin", times=3
    )

    [schedule] = desk.schedules.all
    assert done["result"] == {
        "id": schedule.id,
        "next": "Mon 23 Nov 09:00 Europe/Berlin",
        "told_the_thread": True,
    }
    assert desk.notes == [
        (
            "⏰ Scheduled “Water the plants.”, next on Mon 23 Nov 09:00 Europe/Berlin (0 9 * * 1-5, 3 more, until "
            f"Tue 23 Nov 2027 12:00 Europe/Berlin) (/schedule cancel {schedule.id})"
        )
    ]
    assert (schedule.author, schedule.thread) == (ANN, str(T1))
    listed = await desk.call("schedules")
    assert [one["id"] for one in listed["result"]] == [schedule.id]
    gone = await desk.call("unschedule", id=schedule.id)
    assert gone["result"] == {"cancelled": schedule.id}
    assert "No longer scheduled" in desk.notes[1]
    assert desk.schedules.all == ()


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"in_minutes": 1}, START + timedelta(minutes=1)),
        ({"in_minutes": 366 * 24 * 60}, START + timedelta(days=366)),
        ({"at": "2026-11-22T13:00", "zone": "Europe/Berlin"}, START + timedelta(hours=1)),
        ({"at": "2026-11-22T12:00:00Z"}, START + timedelta(hours=1)),
        ({"cron": "0 * * * *", "zone": "UTC", "until": "2026-11-22T12:00"}, START + timedelta(hours=1)),
    ],
)
async def test_a_time_is_given_in_one_of_three_ways(desk, when, expected):
    await desk.call("schedule", text="now", **when)
    assert [schedule.next_at for schedule in desk.schedules.all] == [expected]


NO_TIME = {
    "none": {},
    "two": {"at": "2026-11-23T09:00Z", "in_minutes": 5},
    "three": {"at": "2026-11-23T09:00Z", "in_minutes": 5, "cron": "0 9 * * *"},
    "no zone": {"at": "2026-11-23T09:00"},
    "a cron without a zone": {"cron": "0 9 * * *"},
    "an unknown zone": {"cron": "0 9 * * *", "zone": "Europe/Berlim"},
    "the past": {"at": "2026-11-22T10:59Z"},
    "too far": {"at": "2027-12-22T10:59Z"},
    "too often": {"cron": "*/14 * * * *", "zone": "UTC"},
    "never": {"cron": "0 0 30 2 *", "zone": "UTC"},
    "over before it begins": {"cron": "0 0 1 1 *", "zone": "UTC", "until": "2026-12-01T00:00Z"},
    "an end without a cron": {"in_minutes": 5, "times": 2},
    "zero minutes": {"in_minutes": 0},
    "more than a year of minutes": {"in_minutes": 10**9},
    "no times": {"cron": "0 9 * * *", "zone": "UTC", "times": 0},
    "a huge cron": {"cron": "0," * 10_000 + "0 9 * * *", "zone": "UTC"},
    "another thread": {"in_minutes": 5, "thread": "slack:T1:C1:1.0"},
    "another author": {"in_minutes": 5, "author": "U9"},
}


@pytest.mark.parametrize("name", NO_TIME)
async def test_what_is_no_time_is_refused_with_a_word(desk, name):
    error = await desk.refused(text="now", **NO_TIME[name])
    assert (error["type"], bool(error["suggestion"])) == ("validation", True)
    assert len(error["message"]) < 400


@pytest.mark.parametrize("text", ["", "  \n", "x" * 2001])
async def test_a_text_that_is_blank_or_too_long_is_refused(desk, text):
    await desk.refused(text=text, in_minutes=5)


async def test_a_message_that_was_scheduled_cannot_schedule_others(desk):
    context = replace(desk.context, message_id="schedule-s1234-1795345260")
    result = await desk.call("schedule", context=context, text="and so on", in_minutes=5)
    assert result["error"]["type"] == "permission"
    assert desk.schedules.all == ()


@pytest.mark.parametrize(
    "text", ["/approve", " /approve q1a2b3c4 always\n", "!deny", "STOP", "stop ", "/nothing", "/new"]
)
async def test_no_command_can_be_scheduled_an_approval_least_of_all(desk, text):
    error = await desk.refused(text=text, in_minutes=1)
    assert error["type"] == "permission"


async def test_a_call_that_is_made_again_schedules_nothing_twice(desk):
    await desk.call("schedule", text="now", in_minutes=5)
    desk.calls = 0
    await desk.call("schedule", text="now", in_minutes=5)
    assert len(desk.schedules.all) == 1


async def test_another_thread_sees_and_cancels_nothing_of_this_one(desk):
    await desk.call("schedule", text="now", in_minutes=5)
    there = replace(desk.context, thread=T2)
    assert (await desk.call("schedules", context=there))["result"] == []
    assert not (await desk.call("unschedule", context=there, id=desk.schedules.all[0].id))["success"]
    assert len(desk.schedules.all) == 1


async def test_anybody_in_the_thread_may_cancel(desk):
    await desk.call("schedule", text="now", in_minutes=5)
    bob = replace(desk.context, asker=Author("U2", "bob"))
    assert (await desk.call("unschedule", context=bob, id=desk.schedules.all[0].id))["success"]


async def test_the_twenty_first_of_a_thread_and_the_eleventh_of_a_person_are_refused(desk):
    for _ in range(10):
        assert (await desk.call("schedule", text="now", in_minutes=5))["success"]
    assert "of this person" in (await desk.call("schedule", text="now", in_minutes=5))["error"]["message"]
    bob = replace(desk.context, asker=Author("U2", "bob"))
    for _ in range(10):
        assert (await desk.call("schedule", context=bob, text="now", in_minutes=5))["success"]
    eve = replace(desk.context, asker=Author("U3", "eve"))
    assert (
        "in this thread"
        in (await desk.call("schedule", context=eve, text="now", in_minutes=5))["error"]["message"]
    )


async def test_what_the_disk_did_not_take_is_not_said_to_be_scheduled(desk):
    desk.disk.refuse["create"] = OSError(28, "full")
    result = await desk.call("schedule", text="now", in_minutes=5)
    assert not result["success"]
    assert (desk.notes, desk.schedules.all) == ([], ())


def test_a_rule_can_be_made_of_when_and_what():
    arguments = ScheduleArguments(text="Say hi.", cron="0 9 * * *", zone="UTC")
    assert arguments.subject() == "0 9 * * * UTC: Say hi."
    assert [SetSchedule.risk, ListSchedules.risk, CancelSchedule.risk] == ["write", "read", "write"]
