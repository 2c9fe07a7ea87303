"""The tools that schedule, as the gate calls them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from bot.extensions.schedule.commands import NO_SCHEDULES, obey
from bot.extensions.schedule.tools import CancelSchedule, ListSchedules, ScheduleArguments, SetSchedule
from bot.schedules.store import Schedules, SchedulesFile
from tests.sim.loop import virtual_time
from tests.tool_context import make_toolbox, tool_context, unheard
from tests.world import ANN, T1, T2, FaultyDisk, inline, message, state_file
from threads.model import Author, ToolCall

START = datetime(2026, 11, 22, 11, tzinfo=UTC)


anyio_backend = virtual_time


class Harness:
    """The three tools, and the context of a call of ann's."""

    def __init__(self, folder) -> None:
        self.disk = FaultyDisk()
        state = state_file(folder / "schedules.json", SchedulesFile(), self.disk)
        self.schedules = Schedules(state, lambda: START)
        tools = [
            SetSchedule(self.schedules, inline, 15),
            ListSchedules(self.schedules),
            CancelSchedule(self.schedules),
        ]
        self.toolbox = make_toolbox(tools)
        self.notes = []
        self.context = tool_context(folder, T1, ANN, "m1", note=self.notes.append)
        self.calls = 0

    async def call(self, name, /, *, context=None, **arguments):
        self.calls += 1
        call = ToolCall(f"c{self.calls}", name, arguments)
        [result] = await self.toolbox.run([call], context or self.context, unheard)
        return json.loads(result.content)

    async def refused(self, **arguments):
        result = await self.call("schedule", **arguments)
        assert not result["success"]
        assert self.notes == []
        assert self.schedules.all == ()
        return result["error"]


@pytest.fixture
def harness(tmp_path):
    return Harness(tmp_path)


async def test_a_schedule_is_stored_noted_in_the_thread_and_can_be_cancelled(harness):
    result = await harness.call(
        "schedule", text="Water the plants.", cron="0 9 * * 1-5", zone="europe/berlin", times=3
    )

    [schedule] = harness.schedules.all
    assert result["result"] == {
        "id": schedule.id,
        "next": "Mon 23 Nov 09:00 Europe/Berlin",
        "told_the_thread": True,
    }
    assert harness.notes == [
        (
            "⏰ Scheduled “Water the plants.”, next on Mon 23 Nov 09:00 Europe/Berlin (0 9 * * 1-5, 3 more, until "
            f"Tue 23 Nov 2027 12:00 Europe/Berlin) (/schedule cancel {schedule.id})"
        )
    ]
    assert (schedule.author, schedule.thread) == (ANN, str(T1))
    listed = await harness.call("schedules")
    assert [one["id"] for one in listed["result"]] == [schedule.id]
    cancelled = await harness.call("unschedule", id=schedule.id)
    assert cancelled["result"] == {"cancelled": schedule.id}
    assert "No longer scheduled" in harness.notes[1]
    assert harness.schedules.all == ()


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
async def test_a_time_can_be_set_in_three_ways(harness, when, expected):
    await harness.call("schedule", text="now", **when)
    assert [schedule.next_at for schedule in harness.schedules.all] == [expected]


INVALID = {
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


@pytest.mark.parametrize("name", INVALID)
async def test_an_invalid_time_is_refused_with_a_suggestion(harness, name):
    error = await harness.refused(text="now", **INVALID[name])
    assert (error["type"], bool(error["suggestion"])) == ("validation", True)
    assert len(error["message"]) < 400


@pytest.mark.parametrize("text", ["", "  \n", "x" * 2001])
async def test_a_text_that_is_blank_or_too_long_is_refused(harness, text):
    await harness.refused(text=text, in_minutes=5)


async def test_a_message_that_was_scheduled_cannot_schedule_others(harness):
    context = replace(harness.context, message_id="schedule-s1234-1795345260")
    result = await harness.call("schedule", context=context, text="and so on", in_minutes=5)
    assert result["error"]["type"] == "permission"
    assert harness.schedules.all == ()


@pytest.mark.parametrize(
    "text", ["/approve", " /approve q1a2b3c4 always\n", "!deny", "STOP", "stop ", "/nothing", "/new"]
)
async def test_no_command_can_be_scheduled(harness, text):
    error = await harness.refused(text=text, in_minutes=1)
    assert error["type"] == "permission"


async def test_a_call_that_is_made_again_schedules_nothing_twice(harness):
    await harness.call("schedule", text="now", in_minutes=5)
    harness.calls = 0
    await harness.call("schedule", text="now", in_minutes=5)
    assert len(harness.schedules.all) == 1


async def test_another_thread_sees_and_cancels_nothing_of_this_one(harness):
    await harness.call("schedule", text="now", in_minutes=5)
    elsewhere = replace(harness.context, thread=T2)
    assert (await harness.call("schedules", context=elsewhere))["result"] == []
    assert not (await harness.call("unschedule", context=elsewhere, id=harness.schedules.all[0].id))[
        "success"
    ]
    assert len(harness.schedules.all) == 1


async def test_anybody_in_the_thread_may_cancel(harness):
    await harness.call("schedule", text="now", in_minutes=5)
    bob = replace(harness.context, asker=Author("U2", "bob"))
    assert (await harness.call("unschedule", context=bob, id=harness.schedules.all[0].id))["success"]


async def test_a_thread_has_twenty_schedules_and_a_person_ten(harness):
    ann, bob, eve = (replace(harness.context, asker=Author(user, user)) for user in ("U1", "U2", "U3"))
    for person, limit in ((ann, "of this person"), (bob, "in this thread")):
        for _ in range(10):
            assert (await harness.call("schedule", context=person, text="now", in_minutes=5))["success"]
        other = eve if person is bob else person
        result = await harness.call("schedule", context=other, text="now", in_minutes=5)
        assert limit in result["error"]["message"]


async def test_a_schedule_that_the_disk_refuses_is_an_error(harness):
    harness.disk.refuse["create"] = OSError(28, "full")
    result = await harness.call("schedule", text="now", in_minutes=5)
    assert not result["success"]
    assert (harness.notes, harness.schedules.all) == ([], ())


def test_a_rule_can_be_made_of_when_and_what():
    arguments = ScheduleArguments(text="Say hi.", cron="0 9 * * *", zone="UTC")
    assert arguments.subject() == "0 9 * * * UTC: Say hi."
    assert [SetSchedule.risk, ListSchedules.risk, CancelSchedule.risk] == ["write", "read", "write"]


async def test_the_command_lists_and_cancels(harness):
    command, here, elsewhere = partial(obey, harness.schedules), message(thread=T1), message(thread=T2)
    assert await command("", here) == NO_SCHEDULES
    await harness.call("schedule", text="Tell me.", cron="0 * * * *", zone="Europe/Berlin")
    [schedule] = harness.schedules.all
    assert "next on Sun 22 Nov 13:00 Europe/Berlin" in await command("list", here)
    assert await command("list", elsewhere) == NO_SCHEDULES
    assert "no such" in await command(f"cancel {schedule.id}", elsewhere)
    assert await command(f"cancel {schedule.id.upper()}", here) == "Cancelled: Tell me."
    assert "/schedule cancel ID" in await command("dance", here)
