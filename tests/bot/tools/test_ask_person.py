"""A question of the model is answered once, by the right person, also over restarts; and it allows nothing."""

import json
from dataclasses import replace
from datetime import timedelta

import anyio
import pytest

from bot import wording
from bot.tools.ask_person import MOST_QUESTIONS
from tests.sim.loop import virtual_time
from tests.world import ANN, Gate, calls, message, says
from threads.model import Attachment, Author, Message, QuestionClosed, Resumed, ToolCall, TurnLimits, Waiting
from threads.wording import APPROVED, NO_QUESTION, NOT_YOURS, OTHER_KIND
from transports.base.transport import Capabilities

from .approval_harness import ADMIN, BOB, commands, press

anyio_backend = virtual_time

QUESTION = "Which database?"


@pytest.fixture(autouse=True)
def _asks(harness):
    harness.platform.capabilities = Capabilities(find=True, asks=True)


def asks(*answers, question=QUESTION, id="c1", **arguments):
    return calls("ask_person", id=id, question=question, answers=list(answers), **arguments)


DATABASES = asks("Postgres", "SQLite")


def stored(harness):
    return [*json.loads((harness.folder / "questions.json").read_text())["asked"].values()]


def last_answer(harness, request=1):
    """Return the last answer that a request of the model has."""
    results = [result for entry in harness.model.requests[request].messages for result in entry.results]
    return json.loads(results[-1].content)["result"]["answer"]


def reply_to(harness, message_id):
    return [post.text for post in harness.platform.posts if post.reply_to == message_id and not post.choices]


async def test_a_button_answers_and_the_model_gets_the_words_as_the_persons_own(harness):
    (question,) = await harness.one_turn(DATABASES, says("done"), presses=[1])
    assert [choice.label for choice in question.choices] == ["1. Postgres", "2. SQLite"]
    assert all(choice.command.startswith("/answer q") for choice in question.choices)
    assert harness.results() == [{"success": True, "result": {"answer": "SQLite", "by": "the person"}}]
    (result,) = harness.model.requests[-1].messages[-1].results
    assert not result.outside
    (closed,) = [event for _, event in harness.platform.events if isinstance(event, QuestionClosed)]
    assert (closed.kind, closed.approved, closed.by, closed.choice) == ("answer", False, ANN.id, "2. SQLite")


async def test_what_is_asked_is_a_quote_behind_the_bots_own_words(harness):
    hostile = "May I use `shell`?\n\n**Always here** <@U9> https://evil.example/\u200b"
    (question,) = await harness.one_turn(asks("Allow once", question=hostile), presses=[0])
    first, *lines = question.text.split("\n")
    assert first == "💬 **The assistant asks:**"
    quoted = [line for line in lines if line.startswith(">")]
    assert quoted[0] == "> May I use \\`shell\\`?"
    assert "`https://evil.example/\\u{200b}`" in quoted[2]
    assert not any("shell" in line or "evil" in line for line in lines if not line.startswith(">"))
    assert [choice.label for choice in question.choices] == ["1. Allow once"]


async def test_a_message_of_the_asker_is_the_answer_and_has_no_turn_of_its_own(harness):
    async with harness.start(DATABASES, says("done")) as bot:
        await harness.asked(bot)
        await bot.orchestrator.receive(message(2, "the one we have, for canary"))
        await harness.platform.settled("m1", "m2")
    assert harness.platform.outcomes == {"m1": "answered", "m2": "merged"}
    assert harness.results()[0]["result"]["answer"] == "the one we have, for [masked]"
    assert len(harness.model.requests) == 2
    assert reply_to(harness, "m2") == []


@pytest.mark.parametrize("busy", ["steer", "queue"])
async def test_anybody_elses_message_waits_as_always(harness, busy):
    async with harness.start(DATABASES, says("one"), says("two")) as bot:
        bot.registry._shared = replace(bot.registry._shared, limits=TurnLimits(busy=busy))
        question = await harness.asked(bot)
        await bot.orchestrator.receive(message(2, "SQLite", author=BOB))
        await bot.orchestrator.receive(message(3, "/answer SQLite", author=BOB))
        await harness.platform.settled("m3")
        assert reply_to(harness, "m3") == [NOT_YOURS]
        assert "m2" not in harness.platform.outcomes
        await press(bot, 4, commands(question)[0])
        await harness.platform.settled("m1", "m2", "m4")
    assert last_answer(harness) == "Postgres"


async def test_an_admin_may_answer_and_the_model_is_told_who_did(harness):
    async with harness.start(DATABASES, says("done")) as bot:
        question = await harness.asked(bot)
        await press(bot, 2, commands(question)[0], author=Author(ADMIN))
        await harness.platform.settled("m1")
    assert harness.results()[0]["result"] == {"answer": "Postgres", "by": "an admin"}


@pytest.mark.parametrize(
    ("typed", "answer"), [("2", "SQLite"), ("sqlite", "SQLite"), ("2. SQLite", "SQLite")]
)
async def test_without_free_text_only_a_choice_is_an_answer(harness, typed, answer):
    async with harness.start(asks("Postgres", "SQLite", free_text=False), says("done"), says("later")) as bot:
        question = await harness.asked(bot)
        assert "write here which one" in question.text
        await bot.orchestrator.receive(message(2, "by the way"))
        await bot.orchestrator.receive(message(3, "/answer by the way"))
        await harness.platform.settled("m3")
        assert reply_to(harness, "m3") == [wording.choose_one(["1. Postgres", "2. SQLite"])]
        await bot.orchestrator.receive(message(4, typed))
        await harness.platform.settled("m1", "m2", "m4")
    assert harness.platform.outcomes["m4"] == "merged"
    assert last_answer(harness) == answer


async def test_a_number_is_not_a_place_where_the_answers_are_numbers(harness):
    presses = ["5", "1", "b"]
    script = [asks("3", "5", question=f"Q{n}?") for n in (1, 2, 3)]
    questions = await harness.one_turn(*script, presses=presses)
    assert [choice.label for choice in questions[0].choices] == ["a. 3", "b. 5"]
    assert [harness.results(n)[0]["result"]["answer"] for n in (1, 2, 3)] == ["5", "1", "5"]


async def test_a_question_without_choices_may_be_skipped(harness):
    (question, _) = await harness.one_turn(asks(), asks(id="c2"), presses=[0, "1"])
    assert [choice.label for choice in question.choices] == ["Skip"]
    skipped, answered = (harness.results(n)[0]["result"] for n in (1, 2))
    assert (skipped["answer"], skipped["why"]) == (None, "The person skipped the question.")
    assert answered["answer"] == "1"


async def test_a_yes_to_a_question_allows_nothing_and_a_permission_answers_nothing(harness):
    step = Message(
        "assistant",
        (
            ToolCall("c1", "shell", {"command": "rm -rf ."}),
            ToolCall("c2", "ask_person", {"question": "Delete all?", "answers": ["Yes"]}),
        ),
        model="fake/one",
    )
    async with harness.start(step, says("done")) as bot:
        await harness.asked(bot, 2)
        (asked,) = [post for post in harness.questions if "Delete" in post.text]
        (approval,) = [post for post in harness.questions if "rm -rf" in post.text]
        asked_id, approval_id = (post.choices[0].command.split()[1] for post in (asked, approval))
        for number, wrong in enumerate((f"/approve {asked_id}", f"/answer {approval_id} yes"), 2):
            await press(bot, number, wrong)
            await harness.platform.settled(f"m{number}")
        assert reply_to(harness, "m2") == [OTHER_KIND["decision"]]
        assert reply_to(harness, "m3") == [OTHER_KIND["answer"]]
        await bot.orchestrator.receive(message(4, "yes"))  # the only typed word that means something
        await harness.platform.settled("m4")
        await bot.orchestrator.receive(message(5, "/deny"))
        await harness.platform.settled("m1", "m5")
    assert harness.platform.outcomes["m4"] == "merged"
    assert harness.run.ran == []
    assert [result["success"] for result in harness.results()] == [False, True]


async def test_questions_of_one_step_are_asked_one_after_another(harness):
    step = Message(
        "assistant",
        tuple(ToolCall(f"c{n}", "ask_person", {"question": f"Question {n}?"}) for n in (1, 2)),
        model="fake/one",
    )
    async with harness.start(step, says("done")) as bot:
        await bot.orchestrator.receive(message())
        for number in (1, 2):
            await harness.question(number)
            await anyio.sleep(10)
            assert len(harness.questions) == number
            await bot.orchestrator.receive(message(number + 1, f"to {number}"))
            await harness.platform.settled(f"m{number + 1}")
        await harness.platform.settled("m1")
    assert len(harness.results()) == 2


async def test_a_second_answer_comes_too_late(harness):
    gate = Gate(says("done"))
    async with harness.start(DATABASES, gate) as bot:
        question = await harness.asked(bot)
        await press(bot, 2, commands(question)[0])
        await gate.began.wait()
        await press(bot, 3, commands(question)[1])
        await harness.platform.settled("m3")
        gate.open.set()
        await harness.platform.settled("m1")
    assert reply_to(harness, "m3") == [NO_QUESTION]
    assert harness.results()[0]["result"]["answer"] == "Postgres"


async def test_nobody_answers_in_time(harness):
    async with harness.start(DATABASES, says("done"), expires_s=60) as bot:
        began = anyio.current_time()
        await bot.orchestrator.receive(message())
        await harness.platform.settled("m1")
    assert 59 < anyio.current_time() - began < 62
    assert harness.results()[0]["result"]["answer"] is None
    assert harness.platform.texts[-1] == f"{wording.NOT_ANSWERED}\n\ndone"
    assert [record["state"] for record in stored(harness)] == ["expired"]


async def test_waiting_takes_no_slot_and_no_time_of_the_turn_or_of_the_tool(harness):
    limits = TurnLimits(running_turns=1, turn_timeout_s=30)
    async with harness.start(DATABASES, says("other"), says("done")) as bot:
        bot.registry._shared = replace(bot.registry._shared, limits=limits)
        question = await harness.asked(bot)
        assert any(isinstance(event, Waiting) for _, event in harness.platform.events)
        await anyio.sleep(1_000)
        await press(bot, 2, commands(question)[0])
        await harness.platform.settled("m1")
    assert any(isinstance(event, Resumed) for _, event in harness.platform.events)
    assert harness.platform.outcomes["m1"] == "answered"


async def test_where_nobody_can_be_asked_the_thread_and_the_model_are_told(harness):
    harness.platform.capabilities = Capabilities(find=True, asks=False)
    async with harness.start(DATABASES, says("done")) as bot:
        await harness.platform.exchange(bot, message())
    assert harness.results()[0]["error"]["message"] == "Nobody can be asked here."
    assert harness.platform.texts == [f"{wording.NOBODY_TO_ANSWER}\n\ndone"]


async def test_a_turn_asks_a_few_questions_at_most(harness):
    script = [asks(question=f"Q{n}?", id=f"c{n}") for n in range(MOST_QUESTIONS + 1)]
    presses = [f"answer {n}" for n in range(MOST_QUESTIONS)]
    assert len(await harness.one_turn(*script, says("done"), presses=presses)) == MOST_QUESTIONS
    assert harness.results()[0]["error"]["type"] == "rate_limit"


@pytest.mark.parametrize(
    "arguments",
    [
        {"question": " "},
        {"question": "q" * 1_001},
        {"question": "ok?", "free_text": False},
        {"question": "ok?", "answers": ["a", "b", "c", "d", "e", "f"]},
        {"question": "ok?", "answers": ["a", "A"]},
        {"question": "ok?", "answers": ["x" * 61]},
        {"question": "ok?", "answers": ["\u200b" * 20]},
        {"question": "ok?", "answers": [" "]},
    ],
)
async def test_a_question_that_nobody_can_answer_is_the_models_fault(harness, arguments):
    await harness.one_turn(calls("ask_person", **arguments), says("done"), presses=[])
    assert harness.results()[0]["error"]["type"] == "validation"


@pytest.mark.parametrize("more", [{"files": (Attachment("F1", "a.txt"),)}, {"quoted": "> SQLite"}])
async def test_a_message_with_a_file_or_with_words_of_others_is_not_an_answer(harness, more):
    async with harness.start(DATABASES) as bot:
        await harness.asked(bot)
        await bot.orchestrator.receive(replace(message(2, "SQLite"), **more))
        await anyio.sleep(10)
        assert [record["state"] for record in stored(harness)] == ["open"]
        assert harness.platform.outcomes == {}


async def test_what_was_said_before_the_question_is_not_its_answer_even_after_a_restart(harness):
    gate = Gate(DATABASES)
    async with harness.start(gate) as bot:
        await gate.hold(bot, message())
        await bot.orchestrator.receive(message(2, "SQLite, by the way"))
        gate.open.set()
        question = await harness.question()
    async with harness.start(says("done"), says("to the rest")) as bot:
        await anyio.sleep(10)
        assert harness.platform.outcomes == {}
        await press(bot, 3, commands(question)[0])
        await harness.platform.settled("m1", "m2")
    assert last_answer(harness, 0) == "Postgres"


async def test_the_same_question_works_after_a_kill_while_it_is_open(harness):
    async with harness.start(DATABASES) as bot:
        before = await harness.asked(bot)
    harness.clock.offset += timedelta(minutes=50)  # longer than anything else may wait
    async with harness.start(says("done")) as bot:
        await bot.orchestrator.receive(message(2, commands(before)[0]))
        await harness.platform.settled("m1", "m2")
    assert harness.results(0)[0]["result"]["answer"] == "Postgres"
    assert len({choice.command for post in harness.questions for choice in post.choices}) == 2
    assert reply_to(harness, "m2") == [APPROVED]


async def test_a_message_typed_while_the_bot_is_down_is_the_answer(harness):
    async with harness.start(DATABASES) as bot:
        await harness.asked(bot)
    async with harness.start(says("done")) as bot:
        await bot.orchestrator.receive(message(2, "neither"))
        await harness.platform.settled("m1", "m2")
    assert harness.platform.outcomes == {"m1": "answered", "m2": "merged"}
    assert harness.results(0)[0]["result"]["answer"] == "neither"
    assert len(harness.model.requests) == 1


async def test_an_answer_on_disk_is_used_after_a_kill_and_not_asked_for_again(harness):
    async with harness.start(DATABASES) as bot:
        await harness.asked(bot)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bot.orchestrator.receive, message(2, "neither"))
            while [record["state"] for record in stored(harness)] != ["answered"]:
                await anyio.lowlevel.checkpoint()  # no more: the kill comes at once
    posts = len(harness.platform.posts)
    async with harness.start(says("done")) as bot:
        await harness.platform.settled("m1", "m2")
    assert harness.platform.outcomes["m2"] == "merged"
    assert harness.results(0)[0]["result"]["answer"] == "neither"
    assert len(harness.platform.posts) == posts + 1
    assert len(harness.model.requests) == 1


async def test_the_audit_has_who_chose_what_and_nothing_that_was_typed(harness):
    await harness.one_turn(DATABASES, asks(id="c2", question="And the canary?"), presses=[0, "my own words"])
    lines = [line for line in harness.audit_lines() if line["kind"] == "question"]
    assert [line["details"]["choice"] for line in lines] == ["1. Postgres", ""]
    assert [line["details"]["about"] for line in lines] == [QUESTION, "And the [masked]?"]
    assert {line["author"] for line in lines} == {ANN.id}
    assert "my own words" not in json.dumps(lines)
