"""Several calls of one step: asked about at once, decided in any order, each by itself."""

import json

import anyio
import pytest

from tests.sim.loop import virtual_time
from tests.world import message, says
from threads.actor.turn import MOST_OPEN
from threads.model import Message, QuestionClosed, Resumed, ToolCall, Waiting

from .test_approvals import BOB, Scene, pressed

anyio_backend = virtual_time


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path / "data")


def step(*commands):
    wanted = (
        ToolCall(f"c{number}", "shell", {"command": command}) for number, command in enumerate(commands)
    )
    return Message("assistant", tuple(wanted))


def ids(scene):
    return [post.choices[0].command.split()[1] for post in scene.platform.posts if post.choices]


def asked_about(scene, command):
    """Return the ids of the questions about a command: the simulated loop starts tasks in any order."""
    posts = [post for post in scene.platform.posts if post.choices and f"```\n{command}\n```" in post.text]
    return [post.choices[0].command.split()[1] for post in posts]


def open_on_disk(scene):
    asked = json.loads((scene.folder / "approvals.json").read_text())["asked"].values()
    return sum(each["state"] == "open" for each in asked)


def said_to(scene, message_id):
    return next(post.text for post in scene.platform.posts if post.reply_to == message_id)


async def test_all_are_shown_at_once_and_results_go_back_in_the_order_asked(scene):
    async with scene.life(step("one", "two", "three"), says("done")) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(3)
        assert scene.run.ran == []
        for number, command in enumerate(("three", "one", "two"), 2):
            await pressed(bot, number, f"/approve {asked_about(scene, command)[0]} once")
            await scene.platform.until(lambda command=command: command in scene.run.ran)
        await scene.platform.settled("m1")
    assert scene.run.ran == ["three", "one", "two"]
    assert [result.call_id for result in scene.model.requests[-1].messages[-1].results] == ["c0", "c1", "c2"]


async def test_one_yes_and_one_no_hold_each_for_its_own_call(scene):
    async with scene.life(step("good", "bad"), says("done")) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(2)
        await pressed(bot, 2, f"/deny {asked_about(scene, 'bad')[0]}")
        await pressed(bot, 3, f"/approve {asked_about(scene, 'good')[0]}")
        await scene.platform.settled("m1")
    assert scene.run.ran == ["good"]
    assert [result["success"] for result in scene.results()] == [True, False]


async def test_each_is_on_disk_before_it_is_told(scene):
    told = []
    post = scene.platform.post

    async def watched(outgoing):
        if outgoing.choices:
            told.append(open_on_disk(scene))
        return await post(outgoing)

    scene.platform.post = watched
    async with scene.life(step("one", "two", "three")) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(3)
    assert all(on_disk >= number for number, on_disk in enumerate(told, 1))


async def test_a_restart_keeps_all_of_them_and_their_old_buttons(scene):
    async with scene.life(step("one", "one", "two")) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(3)
        before = ids(scene)
    async with scene.life(says("done")) as bot:
        for number, press in enumerate(reversed(before), 2):
            await pressed(bot, number, f"/approve {press} once")
        await scene.platform.settled("m1", "m2", "m3", "m4")
    assert ids(scene) == before, "asked again under the same ids, and not posted twice"
    assert sorted(scene.run.ran) == ["one", "one", "two"]
    assert [result["success"] for result in scene.results()] == [True] * 3


async def test_what_ran_before_a_restart_does_not_run_again_beside_what_is_still_open(scene):
    async with scene.life(step("one", "one", "two")) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(3)
        first, second = asked_about(scene, "one")
        await pressed(bot, 2, f"/approve {first}")
        await scene.platform.until(lambda: scene.run.ran)
    async with scene.life(says("done")) as bot:
        await pressed(bot, 3, f"/deny {asked_about(scene, 'two')[0]}")
        await pressed(bot, 4, f"/approve {second}")
        await scene.platform.settled("m1", "m3", "m4")
    assert scene.run.ran == ["one", "one"]
    told = scene.results()
    assert sorted("may or may not have run" in json.dumps(result) for result in told[:2]) == [False, True]
    assert [result["success"] for result in told].count(True) == 1


async def test_without_an_id_they_are_named_and_nothing_is_decided(scene):
    async with scene.life(step("ls -l", "rm\u3164x"), says("done")) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(2)
        for number, command in enumerate(["/approve", "/approve always", "/approve all", "/deny"], 2):
            await pressed(bot, number, command)
            await scene.platform.settled(f"m{number}")
            told = said_to(scene, f"m{number}")
            assert all(each in told for each in (*ids(scene), "shell: ls -l", "shell: rm\\u{3164}x"))
        assert open_on_disk(scene) == 2
        assert scene.run.ran == []
        await pressed(bot, 8, f"/approve {asked_about(scene, 'ls -l')[0]}")
        await scene.platform.settled("m8")
        await pressed(bot, 9, "/approve")  # one is left, so that one is meant
        await scene.platform.settled("m1", "m9")
    assert scene.run.ran == ["ls -l", "rm\u3164x"]


async def test_a_no_to_all_is_a_no_to_each(scene):
    async with scene.life(step("one", "two", "three"), says("all right")) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(3)
        await pressed(bot, 2, "/deny all", author=BOB)
        await scene.platform.settled("m2")
        assert open_on_disk(scene) == 3, "a stranger declines nothing"
        await pressed(bot, 3, "/deny all")
        await scene.platform.settled("m1", "m3")
    assert scene.run.ran == []
    assert [line["details"]["verdict"] for line in scene.audited()] == ["denied"] * 3


async def test_each_expires_by_itself_and_all_of_them_at_the_same_time(scene):
    async with scene.life(step("one", "two", "three"), says("then not"), expires_s=600) as bot:
        began = anyio.current_time()
        await bot.orchestrator.receive(message())
        await scene.question(3)
        await pressed(bot, 2, f"/approve {asked_about(scene, 'two')[0]}")
        await scene.platform.settled("m1")
        assert anyio.current_time() - began == pytest.approx(600, abs=2)
    assert scene.run.ran == ["two"]
    closed = [event.approved for _, event in scene.platform.events if isinstance(event, QuestionClosed)]
    assert closed == [True, False, False]


async def test_the_clock_of_the_turn_stands_still_until_the_last_is_decided(scene):
    """Longer than a turn may take passes between the first answer and the last."""
    async with scene.life(step("one", "two"), says("done"), expires_s=7200) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(2)
        for number, press in enumerate(ids(scene), 2):
            await anyio.sleep(3000)
            await pressed(bot, number, f"/approve {press}")
        await scene.platform.settled("m1")
    assert scene.platform.outcomes["m1"] == "answered"
    waits = [event for _, event in scene.platform.events if isinstance(event, Waiting | Resumed)]
    assert [type(event) for event in waits] == [Waiting, Resumed]


async def test_no_more_than_a_few_are_open_at_once(scene):
    """A model that asks for fifty things does not flood the thread."""
    many = MOST_OPEN + 3
    async with scene.life(step(*map(str, range(many))), says("done")) as bot:
        await bot.orchestrator.receive(message())
        await scene.question(MOST_OPEN)
        await anyio.sleep(5)
        assert len(ids(scene)) == MOST_OPEN
        for number in range(many):
            await scene.question(number + 1)
            await pressed(bot, number + 2, f"/deny {ids(scene)[number]}")
        await scene.platform.settled("m1")
    assert scene.run.ran == []
