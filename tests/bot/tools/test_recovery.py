"""A person chooses how to go on after a failure that the model cannot repair; see `bot.tools.recovery`."""

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest

from bot import wording
from bot.config.settings import Tools
from bot.ports.errors import (
    CommandFailed,
    McpUnavailable,
    SandboxFailed,
    SignInNeeded,
    ToolDenied,
    ToolError,
    ToolInvalidInput,
    ToolNotFound,
    ToolRateLimited,
    ToolTimeout,
)
from bot.tools.recovery import MOST_RECOVERIES, OFFERS
from tests.sim.loop import virtual_time
from tests.world import ANN, calls, message, says
from threads.scheduled_messages import scheduled_id
from threads.wording import APPROVED, OTHER_KIND
from transports.base.transport import Capabilities

from .approval_harness import BOB, Look, commands, press

anyio_backend = virtual_time


@pytest.fixture(autouse=True)
def _asks(harness):
    harness.platform.capabilities = Capabilities(find=True, asks=True)


class SlowLook(Look):
    """Takes 2.5 seconds."""

    async def __call__(self, arguments, context):
        await anyio.sleep(2.5)
        return await super().__call__(arguments, context)


def down():
    return McpUnavailable("The server is down.", suggestion="Go on without it.")


def look(n=1, what="the weather"):
    return calls("look", id=f"c{n}", what=what)


def labels(question):
    return [choice.label for choice in question.choices]


def error(harness, request=-1):
    return harness.results(request)[0]["error"]


async def test_retry_makes_the_same_call_again(harness):
    harness.look.errors = [down()]
    (question,) = await harness.one_turn(look(), says("done"), presses=[0])
    assert labels(question) == ["1. Retry", "2. Go on without"]
    assert question.text.startswith("🔧 **`look` did not work:** the program behind it does not answer.")
    assert "> the weather" in question.text
    assert harness.look.ran == ["the weather"] * 2
    assert harness.results() == [{"success": True, "result": "found"}]


async def test_go_on_without_gives_the_model_the_failure_and_the_persons_word(harness):
    harness.look.errors = [down()]
    await harness.one_turn(look(), says("done"), presses=[1])
    (result,) = harness.results()
    assert result["error"]["message"] == "The server is down."
    assert "chose to go on without" in result["error"]["suggestion"]
    assert result["person"] == "Go on without"
    assert harness.look.ran == ["the weather"]


@pytest.mark.parametrize("typed", ["try Berlin", "/answer try Berlin"])
async def test_other_input_is_what_the_person_writes(harness, typed):
    harness.look.risk = "read"
    harness.look.errors = [ToolNotFound("No such town.", origin="web page") for _ in range(2)]
    (question,) = await harness.one_turn(look(), look(2, "wether"), says("done"), presses=[typed])
    assert labels(question) == ["1. Other input", "2. Go on without"]
    (result,) = harness.results()
    assert result["person"] == "try Berlin"
    assert "No such town." in json.dumps(result["error"])


async def test_the_button_of_other_input_asks_for_the_words_and_leaves_the_question_open(harness):
    harness.look.errors = [ToolTimeout("slow"), ToolTimeout("slow")]
    async with harness.start(look(), look(2, "again"), says("done")) as bot:
        question = await harness.asked(bot)
        await press(bot, 2, commands(question)[1])
        await harness.platform.settled("m2")
        assert harness.platform.texts[-1] == wording.WRITE_INPUT
        await bot.orchestrator.receive(message(3, "only today"))
        await harness.platform.settled("m1", "m3")
    assert harness.results()[0]["person"] == "only today"


@pytest.mark.parametrize("code", [code for code, offer in OFFERS.items() if offer.at == 2])
async def test_where_the_model_may_help_itself_it_tries_first(harness, code):
    (kind,) = (kind for kind in (ToolTimeout, ToolRateLimited, ToolNotFound) if kind.code == code)
    harness.look.errors = [kind("no")]
    await harness.one_turn(look(), look(2), says("done"), presses=[])
    assert harness.questions == []


@pytest.mark.parametrize("kind", [ToolDenied, ToolInvalidInput, SandboxFailed, ToolError])
async def test_what_no_person_can_repair_is_never_asked_about(harness, kind):
    harness.look.errors = [kind("no"), kind("no")]
    await harness.one_turn(look(), look(2, "again"), says("done"), presses=[])
    assert harness.questions == []


async def test_without_an_account_of_their_own_nobody_is_asked_to_sign_in(harness):
    harness.look.errors = [SignInNeeded("Nobody is signed in.", server="shop")]
    await harness.one_turn(look(), says("done"), presses=[])
    assert harness.questions == []
    assert error(harness)["type"] == "permission"


async def test_an_unknown_tool_is_the_models_fault(harness):
    await harness.one_turn(calls("guess"), calls("guess", id="c2", a=1), says("done"), presses=[])
    assert harness.questions == []


@pytest.mark.parametrize(
    ("risk", "kind", "warned"),
    [("net", ToolTimeout, True), ("read", ToolTimeout, False), ("exec", ToolRateLimited, False)],
)
async def test_a_retry_that_may_repeat_effects_says_so(harness, risk, kind, warned):
    harness.look.risk = risk
    harness.look.errors = [kind("no"), kind("no")]
    script = [look(), look(2, "again")][: OFFERS[kind.code].at]
    (question,) = await harness.one_turn(*script, says("done"), rules={"look": "allow"}, presses=[-1])
    assert ("does all of it again" in question.text) == warned


async def test_a_retried_call_asks_for_its_permission_again(harness):
    harness.look.errors = [down()]
    questions = await harness.one_turn(look(), says("done"), rules={"look": "ask"}, presses=[0, 0, 2])
    assert ["May I use" in question.text for question in questions] == [True, False, True]
    assert harness.look.ran == ["the weather"]
    assert error(harness)["type"] == "permission"


async def test_a_retry_that_fails_asks_again_but_not_for_ever(harness):
    harness.look.errors = [down() for _ in range(9)]
    questions = await harness.one_turn(look(), says("done"), presses=[0] * MOST_RECOVERIES)
    assert len({question.choices for question in questions}) == MOST_RECOVERIES
    assert len(harness.look.ran) == MOST_RECOVERIES + 1
    assert error(harness)["message"] == "The server is down."


@pytest.mark.parametrize("recovery", [Tools().recovery, "model"])
@pytest.mark.parametrize("kind", [ToolNotFound, ToolTimeout, ToolRateLimited, McpUnavailable, CommandFailed])
async def test_five_failures_are_five_results_and_nobody_is_asked(harness, kind, recovery):
    harness.look.errors = [kind(f"No. {n}") for n in range(5)]
    tries = [look(n, f"town {n}") for n in range(5)]
    began = anyio.current_time()
    await harness.one_turn(*tries, says("done"), presses=[], recovery=recovery)
    assert harness.questions == []
    assert [error(harness, n)["message"] for n in range(1, 6)] == [f"No. {n}" for n in range(5)]
    assert harness.platform.texts == ["done"]
    assert anyio.current_time() - began < 1, "the tools took no time, so the turn took none"


async def test_a_person_chooses_a_retry_of_a_failed_call_and_the_log_tells_both(harness, caplog):
    caplog.set_level(logging.INFO, "bot.tools.gate")
    harness.look = SlowLook(errors=[down()])
    await harness.one_turn(look(), says("done"), presses=[0])
    failure, retry = [line for line in caplog.records if line.name == "bot.tools.gate"]
    assert (failure.levelname, failure.tool, failure.code) == ("ERROR", "look", "mcp_unavailable")
    assert (failure.duration_ms, failure.attempt) == (2500, 1)
    assert (retry.levelname, retry.tool, retry.attempt) == ("WARNING", "look", 2)


@pytest.mark.parametrize("asks", [True, False])
async def test_a_pipe_and_a_scheduled_message_are_not_asked(harness, asks):
    harness.platform.capabilities = Capabilities(find=True, asks=asks)
    harness.look.errors = [down()]
    scheduled = scheduled_id("s1", datetime(2026, 11, 21, 10, tzinfo=UTC))
    async with harness.start(look(), says("done")) as bot:
        await harness.platform.exchange(bot, replace(message(), id=scheduled) if asks else message())
    assert harness.questions == []
    assert error(harness)["message"] == "The server is down."


async def test_nobody_answers_and_the_model_gets_the_failure(harness):
    harness.look.errors = [down()]
    await harness.one_turn(look(), says("done"), presses=[], expires_s=60)
    assert error(harness)["suggestion"] == "Go on without it."


async def test_only_the_asker_chooses_and_no_approval_does(harness):
    harness.look.errors = [down()]
    async with harness.start(look(), says("done")) as bot:
        question = await harness.asked(bot)
        question_id = question.choices[0].command.split()[1]
        await press(bot, 2, commands(question)[0], author=BOB)
        await press(bot, 3, f"/approve {question_id}")
        await harness.platform.settled("m2", "m3")
        assert harness.platform.texts[-1] == OTHER_KIND["decision"]
        assert harness.look.ran == ["the weather"]
        await press(bot, 4, commands(question)[1])
        await harness.platform.settled("m1", "m4")


async def test_who_went_on_without_is_not_asked_again_in_that_turn(harness):
    harness.look.errors = [down(), down()]
    await harness.one_turn(look(), look(2, "else"), says("done"), presses=[1])
    assert len(harness.questions) == 1


async def choose_after_a_restart(harness, choice):
    harness.look.errors = [down()]
    async with harness.start(look()) as bot:
        question = await harness.asked(bot)
    async with harness.start(says("done")) as bot:
        await press(bot, 2, commands(question)[choice])
        await harness.platform.settled("m1", "m2")


async def test_a_restart_asks_again_and_does_not_run_the_failed_call_by_itself(harness):
    await choose_after_a_restart(harness, 1)
    assert harness.look.ran == ["the weather"]
    assert any(text.endswith("done") for text in harness.platform.texts)
    assert APPROVED in harness.platform.texts
    assert error(harness, 0)["message"] == "The server is down."
    assert harness.results(0)[0]["person"] == "Go on without"


async def test_a_retry_chosen_after_a_restart_runs_once(harness):
    await choose_after_a_restart(harness, 0)
    assert harness.look.ran == ["the weather"] * 2
    async with harness.start(says("more")) as bot:
        await harness.platform.exchange(bot, message(3))
    assert harness.look.ran == ["the weather"] * 2


async def test_the_audit_has_what_failed_and_what_was_chosen(harness):
    harness.look.errors = [down()]
    await harness.one_turn(look(), says("done"), presses=[0])
    (line,) = [line for line in harness.audit_lines() if line["kind"] == "question"]
    assert line["details"] == {
        "topic": "recovery",
        "about": "look: the program behind it does not answer",
        "verdict": "answered",
        "choice": "1. Retry",
        "code": "mcp_unavailable",
    }
    assert line["author"] == ANN.id
