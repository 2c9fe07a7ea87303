"""Several calls of one step: asked about at once, decided in any order, each by itself."""

import json

import anyio
import pytest

from tests.sim.loop import virtual_time
from tests.world import says
from threads.actor.turn import MOST_OPEN
from threads.model import Message, QuestionClosed, Resumed, ToolCall, Waiting

from .approval_harness import BOB, press

anyio_backend = virtual_time


def step(*commands):
    return Message(
        "assistant",
        tuple(
            ToolCall(f"c{number}", "shell", {"command": command}) for number, command in enumerate(commands)
        ),
    )


def ids(harness):
    return [post.choices[0].command.split()[1] for post in harness.platform.posts if post.choices]


def question_ids(harness, command):
    """Return the ids of the questions about a command: the simulated loop starts tasks in any order."""
    posts = [post for post in harness.platform.posts if post.choices and f"```\n{command}\n```" in post.text]
    return [post.choices[0].command.split()[1] for post in posts]


def open_on_disk(harness):
    asked = json.loads((harness.folder / "approvals.json").read_text())["asked"].values()
    return sum(each["state"] == "open" for each in asked)


def reply_to(harness, message_id):
    return next(post.text for post in harness.platform.posts if post.reply_to == message_id)


async def test_all_are_shown_at_once_and_results_go_back_in_the_order_asked(harness):
    async with harness.start(step("one", "two", "three"), says("done")) as bot:
        await harness.asked(bot, 3)
        assert harness.run.ran == []
        for number, command in enumerate(("three", "one", "two"), 2):
            await press(bot, number, f"/approve {question_ids(harness, command)[0]} once")
            await harness.platform.until(lambda command=command: command in harness.run.ran)
        await harness.platform.settled("m1")
    assert harness.run.ran == ["three", "one", "two"]
    expected = ["c0", "c1", "c2"]
    assert [result.call_id for result in harness.model.requests[-1].messages[-1].results] == expected


async def test_one_yes_and_one_no_hold_each_for_its_own_call(harness):
    async with harness.start(step("good", "bad"), says("done")) as bot:
        await harness.asked(bot, 2)
        await press(bot, 2, f"/deny {question_ids(harness, 'bad')[0]}")
        await press(bot, 3, f"/approve {question_ids(harness, 'good')[0]}")
        await harness.platform.settled("m1")
    assert harness.run.ran == ["good"]
    assert [result["success"] for result in harness.results()] == [True, False]


async def test_each_is_on_disk_before_it_is_told(harness):
    open_counts = []
    post = harness.platform.post

    async def watched(outgoing):
        if outgoing.choices:
            open_counts.append(open_on_disk(harness))
        return await post(outgoing)

    harness.platform.post = watched
    async with harness.start(step("one", "two", "three")) as bot:
        await harness.asked(bot, 3)
    assert all(on_disk >= number for number, on_disk in enumerate(open_counts, 1))


async def test_a_restart_keeps_all_of_them_and_their_old_buttons(harness):
    async with harness.start(step("one", "one", "two")) as bot:
        await harness.asked(bot, 3)
        before = ids(harness)
    async with harness.start(says("done")) as bot:
        for number, question in enumerate(reversed(before), 2):
            await press(bot, number, f"/approve {question} once")
        await harness.platform.settled("m1", "m2", "m3", "m4")
    assert ids(harness) == before, "asked again under the same ids, and not posted twice"
    assert sorted(harness.run.ran) == ["one", "one", "two"]
    assert [result["success"] for result in harness.results()] == [True] * 3


async def test_what_ran_before_a_restart_does_not_run_again_beside_what_is_still_open(harness):
    async with harness.start(step("one", "one", "two")) as bot:
        await harness.asked(bot, 3)
        first, second = question_ids(harness, "one")
        await press(bot, 2, f"/approve {first}")
        await harness.platform.until(lambda: harness.run.ran)
    async with harness.start(says("done")) as bot:
        await press(bot, 3, f"/deny {question_ids(harness, 'two')[0]}")
        await press(bot, 4, f"/approve {second}")
        await harness.platform.settled("m1", "m3", "m4")
    assert harness.run.ran == ["one", "one"]
    results = harness.results()
    assert sorted("may or may not have run" in json.dumps(result) for result in results[:2]) == [False, True]
    assert [result["success"] for result in results].count(True) == 1


async def test_without_an_id_they_are_named_and_nothing_is_decided(harness):
    async with harness.start(step("ls -l", "rm\u3164x"), says("done")) as bot:
        await harness.asked(bot, 2)
        for number, command in enumerate(["/approve", "/approve always", "/approve all", "/deny"], 2):
            await press(bot, number, command)
            await harness.platform.settled(f"m{number}")
            reply = reply_to(harness, f"m{number}")
            assert all(each in reply for each in (*ids(harness), "shell: ls -l", "shell: rm\\u{3164}x"))
        assert open_on_disk(harness) == 2
        assert harness.run.ran == []
        await press(bot, 8, f"/approve {question_ids(harness, 'ls -l')[0]}")
        await harness.platform.settled("m8")
        await press(bot, 9, "/approve")  # one is left, so that one is meant
        await harness.platform.settled("m1", "m9")
    assert harness.run.ran == ["ls -l", "rm\u3164x"]


async def test_a_no_to_all_is_a_no_to_each(harness):
    async with harness.start(step("one", "two", "three"), says("all right")) as bot:
        await harness.asked(bot, 3)
        await press(bot, 2, "/deny all", author=BOB)
        await harness.platform.settled("m2")
        assert open_on_disk(harness) == 3, "a stranger declines nothing"
        await press(bot, 3, "/deny all")
        await harness.platform.settled("m1", "m3")
    assert harness.run.ran == []
    assert [line["details"]["verdict"] for line in harness.audit_lines()] == ["denied"] * 3


async def test_each_expires_by_itself_and_all_of_them_at_the_same_time(harness):
    async with harness.start(step("one", "two", "three"), says("then not"), expires_s=600) as bot:
        began = anyio.current_time()
        await harness.asked(bot, 3)
        await press(bot, 2, f"/approve {question_ids(harness, 'two')[0]}")
        await harness.platform.settled("m1")
        assert anyio.current_time() - began == pytest.approx(600, abs=2)
    assert harness.run.ran == ["two"]
    closed = [event.approved for _, event in harness.platform.events if isinstance(event, QuestionClosed)]
    assert closed == [True, False, False]


async def test_the_clock_of_the_turn_stands_still_until_the_last_is_decided(harness):
    """Longer than a turn may take passes between the first answer and the last."""
    async with harness.start(step("one", "two"), says("done"), expires_s=7200) as bot:
        await harness.asked(bot, 2)
        for number, question in enumerate(ids(harness), 2):
            await anyio.sleep(3000)
            await press(bot, number, f"/approve {question}")
        await harness.platform.settled("m1")
    assert harness.platform.outcomes["m1"] == "answered"
    waits = [event for _, event in harness.platform.events if isinstance(event, Waiting | Resumed)]
    assert [type(event) for event in waits] == [Waiting, Resumed]


async def test_no_more_than_a_few_are_open_at_once(harness):
    """A model that asks for fifty things does not flood the thread."""
    many = MOST_OPEN + 3
    async with harness.start(step(*map(str, range(many))), says("done")) as bot:
        await harness.asked(bot, MOST_OPEN)
        await anyio.sleep(5)
        assert len(ids(harness)) == MOST_OPEN
        for number in range(many):
            await harness.question(number + 1)
            await press(bot, number + 2, f"/deny {ids(harness)[number]}")
        await harness.platform.settled("m1")
    assert harness.run.ran == []
