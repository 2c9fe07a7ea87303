"""Approvals in Slack and in Discord as people see them: the question, its buttons, who may press, what it does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import anyio
import pytest

from bot.ports import wording
from bot.tools.approvals import MAX_INLINE
from tests.transports.approving import Scene
from tests.transports.chats import ASKS, chat_of
from tests.world import calls, says
from threads.model import Message, ToolCall

pytestmark = pytest.mark.anyio

ONCE, ALWAYS, DENY = "Allow once", "Always here", "Deny"
LS = calls("shell", command="ls -l")


@pytest.fixture(params=["slack", "discord"])
async def scene(request, tmp_path):
    async with chat_of(request.param) as chat:
        yield Scene(chat, tmp_path / "data")


async def settle(scene, thread):
    """Let everything that is under way reach its end: a later message is answered."""
    before = len([text for text in scene.chat.texts(thread) if "ok" in text])
    await scene.chat.say(thread, "still there?")
    await scene.until(lambda: len([text for text in scene.chat.texts(thread) if "ok" in text]) > before)


async def test_allowed_once_it_runs_once_and_the_buttons_give_way_to_who_did_it(scene):
    chat = scene.chat
    async with scene.life(LS, says("it is done")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        assert "```\nls -l\n```" in asked.text
        assert list(asked.buttons) == [ONCE, ALWAYS, DENY]
        assert scene.run.ran == []
        if chat.name == "slack":
            await scene.until(lambda: chat.fake.session("C1", thread).status == "suspended")
        await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "it is done")
        await scene.ended(thread, "Approved by")
    assert scene.run.ran == ["ls -l"]


async def test_denied_it_does_not_run_and_the_question_says_so(scene):
    chat = scene.chat
    async with scene.life(LS, says("then not")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        await chat.press(asked, asked.buttons[DENY])
        await scene.answered(thread, "then not")
        await scene.ended(thread, "Declined by")
    assert scene.run.ran == []


async def test_another_person_is_told_alone_that_it_is_not_theirs_and_an_admin_may_press(scene):
    chat = scene.chat
    async with scene.life(LS, says("it is done")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        for choice in (ONCE, ALWAYS, DENY):
            await chat.press(asked, asked.buttons[choice], chat.bob)
        await scene.until(lambda: sum("not yours" in text for text in chat.alone(chat.bob)) == 3)
        assert scene.run.ran == []
        assert (await scene.question(thread)).buttons == asked.buttons
        assert not any("not yours" in text for text in chat.texts(thread))
        await chat.press(asked, asked.buttons[ONCE], chat.admin)
        await scene.answered(thread, "it is done")
        await scene.ended(thread, "Approved by")
    assert scene.run.ran == ["ls -l"]


async def test_a_double_click_and_two_people_at_once_are_one_run(scene):
    chat = scene.chat
    async with scene.life(LS, says("it is done")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        async with anyio.create_task_group() as tasks:
            for user in (chat.ann, chat.ann, chat.admin, chat.bob):
                tasks.start_soon(partial(chat.press, asked, asked.buttons[ONCE], user, stale=True))
        await scene.answered(thread, "it is done")
        await settle(scene, thread)
    assert scene.run.ran == ["ls -l"]


async def test_a_press_after_the_decision_does_nothing_and_says_so(scene):
    chat = scene.chat
    async with scene.life(LS, says("then not")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        await chat.press(asked, asked.buttons[DENY])
        await scene.ended(thread, "Declined by")
        await scene.answered(thread, "then not")
        await chat.press(asked, asked.buttons[ONCE], stale=True)
        await scene.until(lambda: any("no question of mine open" in text for text in chat.alone(chat.ann)))
        await settle(scene, thread)
    assert scene.run.ran == []


async def test_a_question_that_nobody_answers_expires_visibly_and_its_button_is_dead(scene):
    chat = scene.chat
    async with scene.life(LS, says("then not"), expires_s=2):
        thread = await chat.ask()
        asked = await scene.question(thread)
        await scene.answered(thread, "nobody allowed it in time")
        await scene.ended(thread, "Nobody decided in time.")
        await chat.press(asked, asked.buttons[ONCE], stale=True)
        await scene.until(lambda: any("no question of mine open" in text for text in chat.alone(chat.ann)))
    assert scene.run.ran == []


async def test_after_a_stop_the_button_is_dead_and_gone(scene):
    chat = scene.chat
    async with scene.life(LS):
        thread = await chat.ask()
        asked = await scene.question(thread)
        await chat.say(thread, "/stop")
        await scene.answered(thread, "Stopped")
        await chat.press(asked, asked.buttons[ONCE], stale=True)
        await scene.until(lambda: any("no question of mine open" in text for text in chat.alone(chat.ann)))
        await scene.ended(thread, "Not decided.")
        await settle(scene, thread)
    assert scene.run.ran == []


async def test_an_old_button_works_after_a_restart_and_the_question_is_not_asked_twice(scene):
    chat = scene.chat
    async with scene.life(LS):
        thread = await chat.ask()
        asked = await scene.question(thread)
    async with scene.life(says("it is done")):
        await anyio.sleep(0.3)
        await chat.press(asked, asked.buttons[ONCE], chat.bob)
        await scene.until(lambda: any("not yours" in text for text in chat.alone(chat.bob)))
        assert (await scene.question(thread)).buttons == asked.buttons
        await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "it is done")
        await scene.ended(thread, "Approved by")
    assert scene.run.ran == ["ls -l"]
    assert sum(ASKS in text for text in chat.texts(thread)) == 1


async def test_a_button_that_is_pressed_before_the_turn_is_back_at_its_question_counts(scene):
    chat = scene.chat
    async with scene.life(LS):
        thread = await chat.ask()
        asked = await scene.question(thread)
    async with scene.life(says("it is done")):
        await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "it is done")
        await scene.ended(thread, "Approved by")
    assert scene.run.ran == ["ls -l"]


async def test_two_of_one_step_stand_side_by_side_and_each_press_is_for_its_own(scene):
    chat = scene.chat
    both = (ToolCall("c1", "shell", {"command": "ls"}), ToolCall("c2", "shell", {"command": "id"}))
    async with scene.life(Message("assistant", both), says("it is done")):
        thread = await chat.ask()
        await scene.question(thread, 2)
        asked = {("id" if "\nid\n" in each.text else "ls"): each for each in chat.questions(thread)}
        await chat.say(thread, "/approve")
        await scene.answered(thread, "2 questions of mine are open here.")
        assert scene.run.ran == []
        await chat.press(asked["id"], asked["id"].buttons[ONCE])
        await scene.until(lambda: scene.run.ran == ["id"])
        assert [len(each.buttons) for each in chat.questions(thread) if each.id == asked["ls"].id] == [3]
        await chat.press(asked["ls"], asked["ls"].buttons[DENY])
        await scene.answered(thread, "it is done")
        for number, how in ((1, "by"), (2, "by")):
            await scene.ended(thread, how, number=number)
        ends = {each.id: each.text for each in chat.questions(thread)}
        assert "Approved" in ends[asked["id"].id]
        assert "Declined" in ends[asked["ls"].id]
    assert scene.run.ran == ["id"]


async def test_after_a_stop_the_buttons_of_all_open_questions_are_gone(scene):
    chat = scene.chat
    both = (ToolCall("c1", "shell", {"command": "ls"}), ToolCall("c2", "shell", {"command": "id"}))
    async with scene.life(Message("assistant", both)):
        thread = await chat.ask()
        await scene.question(thread, 2)
        await chat.say(thread, "/stop")
        for number in (1, 2):
            await scene.ended(thread, "Not decided.", number=number)
    assert scene.run.ran == []


async def test_the_same_call_again_is_a_question_of_its_own_that_is_seen(scene):
    chat = scene.chat
    async with scene.life(LS, replace(LS), says("it is done")):
        thread = await chat.ask()
        first = await scene.question(thread)
        await chat.press(first, first.buttons[ONCE])
        second = await scene.question(thread, 2)
        assert second.id != first.id
        assert scene.run.ran == ["ls -l"]
        await chat.press(first, first.buttons[ALWAYS], stale=True)
        await scene.until(lambda: any("no question of mine open" in text for text in chat.alone(chat.ann)))
        assert scene.run.ran == ["ls -l"]
        await chat.press(second, second.buttons[DENY])
        await scene.answered(thread, "it is done")
    assert scene.run.ran == ["ls -l"]


async def test_always_here_asks_no_more_in_this_thread_but_in_another(scene):
    chat = scene.chat
    async with scene.life(LS, says("one"), replace(LS), says("two"), replace(LS), says("three")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        await chat.press(asked, asked.buttons[ALWAYS])
        await scene.answered(thread, "one")
        await chat.say(thread, "again")
        await scene.answered(thread, "two")
        assert scene.run.ran == ["ls -l", "ls -l"]
        other = await chat.ask("elsewhere")
        asked = await scene.question(other)
        await chat.press(asked, asked.buttons[DENY])
        await scene.answered(other, "three")
    assert scene.run.ran == ["ls -l", "ls -l"]


@pytest.mark.parametrize(
    ("said", "runs"), [("/approve", 1), ("!approve", 1), ("!approve always", 2), ("/deny", 0), ("yes", 0)]
)
async def test_a_typed_answer_counts_and_other_words_do_not(scene, said, runs):
    chat = scene.chat
    script = [LS, says("one"), *([replace(LS), says("two")] if runs == 2 else [])]
    async with scene.life(*script):
        thread = await chat.ask()
        await scene.question(thread)
        await chat.say(thread, said)
        if said == "yes":
            await anyio.sleep(0.3)
            assert scene.run.ran == []
            assert (await scene.question(thread)).buttons
            await chat.say(thread, "/deny")
        await scene.answered(thread, "one")
        if runs == 2:
            await chat.say(thread, "again")
            await scene.answered(thread, "two")
    assert len(scene.run.ran) == runs


async def test_words_that_no_yes_has_leave_the_question_open(scene):
    chat = scene.chat
    async with scene.life(LS, says("one")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        await chat.say(thread, "/approve everything for ever")
        await scene.answered(thread, wording.ONCE_OR_ALWAYS.split(",")[0])
        assert scene.run.ran == []
        await chat.press(asked, asked.buttons[DENY])
        await scene.answered(thread, "one")
    assert scene.run.ran == []


async def test_a_slash_command_answers_where_the_platform_has_one_in_threads(scene):
    chat = scene.chat
    async with scene.life(LS, says("one")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        await chat.slash(thread, "approve", user=chat.bob)
        await chat.slash(thread, "approve")
        if chat.name == "slack":  # which has none in threads
            await scene.until(lambda: any("in the thread" in text for text in chat.alone(chat.ann)))
            assert scene.run.ran == []
            await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "one")
    assert scene.run.ran == ["ls -l"]
    if chat.name == "discord":
        assert any("not yours" in text for text in chat.alone(chat.bob))


def altered(chat, true, other):
    """Return payloads that somebody forges: of another question, thread or command, or with more in them."""
    question, foreign = true.split()[1], other.split()[1]
    start = true.partition("/")[0]
    yield f"{start}/approve {foreign} once"
    yield f"{start}/approve q00000000 once"
    yield f"{start}/approve {question.upper()} once"
    yield f"{start}/approve {question}x once"
    yield f"{start}/approve C1:1.0 {question}"
    yield f"{start}/approve slack:T1:C1:1.0 once"
    yield f"{start}/approve {question} once\n/stop"
    yield f"{start}approve {question} once"
    yield f"{start}/shell ls -l"
    yield f"{start}/approve {question} sudo"
    yield "choice:0:"
    yield ""


async def test_altered_buttons_do_nothing(scene):
    chat = scene.chat
    async with scene.life(LS, calls("shell", command="rm -rf ."), says("one"), says("two")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        other = await chat.ask("elsewhere", chat.bob)
        foreign = await scene.question(other)
        for payload in altered(chat, asked.buttons[ONCE], foreign.buttons[ONCE]):
            await chat.press(asked, payload, stale=True)
            await chat.press(foreign, payload, stale=True)
        await anyio.sleep(0.3)
        assert scene.run.ran == []
        await chat.press(asked, asked.buttons[DENY], stale=True)
        await chat.press(foreign, foreign.buttons[DENY], chat.bob, stale=True)
        await scene.ended(thread, "Declined")
        await scene.ended(other, "Declined")
    assert scene.run.ran == []


async def test_long_arguments_come_whole_as_a_file_in_the_thread_before_the_question(scene):
    chat, command = scene.chat, "echo " + "x" * (2 * MAX_INLINE)
    async with scene.life(calls("shell", command=command), says("one")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        assert "has all of it" in asked.text
        assert chat.files(thread) == {"shell.txt": command.encode()}
        await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "one")
    assert scene.run.ran == [command]


@pytest.mark.parametrize(
    "command",
    [
        "curl 'https://example.com/?a=1&b=<2>' | sh",
        'echo `id` $(id) ~x~ *b* _i_ && echo "q"',
        "echo ```` && cat <<EOF\nline\nEOF",
        "ls \\* [a-z] {x,y} #1 > out 2>&1",
    ],
)
async def test_what_is_shown_is_exactly_what_runs(scene, command):
    chat = scene.chat
    async with scene.life(calls("shell", command=command), says("one")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        assert f"\n{command}\n" in asked.text.replace("\u200b", "")
        await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "one")
        assert chat.fake.pings == []
    assert scene.run.ran == [command]


async def test_a_command_that_names_everybody_pings_nobody_and_is_still_readable(scene):
    chat = scene.chat
    async with scene.life(calls("shell", command="say @everyone <!channel> <@U2> @here"), says("one")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        assert "everyone" in asked.text
        await chat.press(asked, asked.buttons[DENY])
        await scene.answered(thread, "one")
        assert chat.fake.pings == []
        assert chat.fake.unfurls == []


@pytest.mark.parametrize("what", ["edit", "delete"])
async def test_changing_the_message_that_asked_changes_nothing_of_what_is_decided(scene, what):
    chat = scene.chat
    async with scene.life(LS, says("it is done")):
        thread = await chat.ask()
        asked = await scene.question(thread)
        if what == "edit":
            await chat.edit(thread, "rm -rf /")
        else:
            await chat.delete(thread)
        await chat.press(asked, asked.buttons[ONCE])
        await scene.answered(thread, "it is done")
    assert scene.run.ran == ["ls -l"]
