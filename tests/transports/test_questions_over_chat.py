"""Questions of the model in Slack, in Discord and on the page, as people see them; see `bot.tools.ask_person`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import anyio
import pytest

from bot.ports.errors import McpUnavailable
from bot.ports.tool import Arguments
from tests.transports.approval_bot import SECRET, ApprovalBot
from tests.transports.matrix.synapse import IN_MATRIX
from tests.world import calls, says

POSTGRES, SQLITE = "1. Postgres", "2. SQLite"
ASK = {"question": "Which database?", "answers": ["Postgres", "SQLite"]}
LEAD = "The assistant asks"
NOT_YOURS, NOT_OPEN = "not yours", "no question of mine open"

ANYWHERE = pytest.mark.parametrize("chat", ["slack", "discord", "web", IN_MATRIX], indirect=True)
"""A story of one person, which the page tells as well."""


@pytest.fixture
def bot(chat, tmp_path):
    return ApprovalBot(chat, tmp_path / "data")


def ask(**changes):
    return calls("ask_person", **{**ASK, **changes})


async def asked(bot, thread, lead=LEAD):
    """Return the open question of a thread, with its buttons."""

    def found():
        return [each for each in bot.chat.with_buttons(thread) if lead in each.text]

    await bot.until(found)
    return found()[0]


async def begin(bot, lead=LEAD):
    thread = await bot.chat.ask()
    return thread, await asked(bot, thread, lead)


async def closed(bot, thread, how):
    """Wait until no question of the thread has buttons, and one says how it ended."""
    await bot.until(lambda: not bot.chat.with_buttons(thread) and how in "\n".join(bot.chat.texts(thread)))


def answer_in(model):
    return [result.content for entry in model.requests[-1].messages for result in entry.results][-1]


@ANYWHERE
async def test_a_press_answers_and_the_buttons_give_way_to_the_answer(bot, chat):
    async with bot.running(ask(), says("it is done")) as model:
        thread, question = await begin(bot)
        assert list(question.buttons) == [POSTGRES, SQLITE]
        assert "> Which database?" in question.text
        await bot.press(question, SQLITE)
        await bot.answered(thread, "it is done")
        await closed(bot, thread, f": {SQLITE}")
        assert f"Answered{chat.by}" in "\n".join(chat.texts(thread))
    assert '"answer": "SQLite"' in answer_in(model)


async def test_a_typed_message_of_the_asker_is_the_answer(bot, chat):
    async with bot.running(ask(), says("it is done"), says("for Bob")) as model:
        thread, _ = await begin(bot)
        await chat.say(thread, "what about Oracle", chat.bob)
        await anyio.sleep(0.3)
        assert chat.with_buttons(thread)
        await chat.say(thread, f"neither, see {SECRET}")
        await bot.answered(thread, "it is done")
        await closed(bot, thread, "Answered by")
    contents = [
        result.content for request in model.requests for m in request.messages for result in m.results
    ]
    assert '"answer": "neither, see [masked]"' in contents[0]
    assert not any("Thank you" in text for text in chat.texts(thread))


async def test_only_the_asker_or_an_admin_may_press_and_a_double_click_is_one_answer(bot, chat):
    async with bot.running(ask(), says("it is done")) as model:
        thread, question = await begin(bot)
        await bot.press(question, SQLITE, chat.bob)
        await bot.told_alone(chat.bob, NOT_YOURS)
        assert (await asked(bot, thread)).buttons == question.buttons
        async with anyio.create_task_group() as tasks:
            for user in (chat.admin, chat.admin, chat.bob):
                tasks.start_soon(partial(bot.press, question, POSTGRES, user, stale=True))
        await bot.answered(thread, "it is done")
        await closed(bot, thread, f": {POSTGRES}")
        assert len(model.requests) == 2
    assert '"by": "an admin"' in answer_in(model)


@ANYWHERE
async def test_nobody_answers_and_the_old_buttons_do_nothing(bot, chat):
    async with bot.running(ask(), says("it is done"), expires_s=2) as model:
        thread, question = await begin(bot)
        await bot.answered(thread, "Nobody answered my question in time")
        await closed(bot, thread, "Nobody answered in time.")
        await bot.press(question, SQLITE, stale=True)
        await bot.told_alone(chat.ann, NOT_OPEN)
    assert '"answer": null' in answer_in(model)


@ANYWHERE
@pytest.mark.parametrize("typed", [True, False])
async def test_the_same_question_works_after_a_restart_and_is_asked_once(bot, chat, typed):
    async with bot.running(ask()):
        thread, question = await begin(bot)
    async with bot.running(says("it is done")) as model:
        if typed:
            await chat.say(thread, "SQLite")
        else:
            await bot.press(question, SQLITE)
        await bot.answered(thread, "it is done")
        await closed(bot, thread, f": {SQLITE}")
    assert '"answer": "SQLite"' in answer_in(model)
    assert sum(LEAD in text for text in chat.texts(thread)) == 1


@ANYWHERE
async def test_hostile_words_ping_nobody_link_nowhere_and_stay_in_the_quote(bot, chat):
    hostile = (
        "@everyone <!channel> <@U2> [click](https://evil.example/x) https://evil.example\n\n"
        "```\nMay I use `shell`?\n```\n# Big\u202e\u200b"
    )
    labels = ["*x* <@U2> `y`", "\u202eseY @everyone", "https://evil.example"]
    async with bot.running(ask(question=hostile, answers=labels), says("it is done")):
        thread, question = await begin(bot)
        lines = [
            line for line in question.text.split("\n") if "evil" in line or "May I" in line or "Big" in line
        ]
        assert lines
        assert all(line.lstrip().startswith((">", "&gt;")) for line in lines)
        assert "\\u" in question.text
        assert "\u202e" not in question.text + "".join(question.buttons)
        await bot.press(question, [*question.buttons][1])
        await bot.answered(thread, "it is done")
        await closed(bot, thread, f"Answered{chat.by}")
        assert chat.fake.pings == []
        assert chat.fake.unfurls == []


class LookArguments(Arguments):
    what: str


@dataclass
class Look:
    failures: int = 1
    name: ClassVar[str] = "look"
    description: ClassVar[str] = "Look something up."
    risk: ClassVar[str] = "read"
    arguments: ClassVar[type[Arguments]] = LookArguments

    async def __call__(self, arguments, context):
        self.failures -= 1
        if self.failures >= 0:
            raise McpUnavailable("The server is down.")
        return "sunny"


@ANYWHERE
@pytest.mark.parametrize("restart", [True, False])
async def test_a_person_has_a_failed_call_made_again(bot, chat, restart):
    bot.tools.append(Look())
    script, end = [calls("look", what="the weather")], [says("it is done")]
    async with bot.running(*script, *([] if restart else end)) as model:
        thread, question = await begin(bot, "did not work")
        assert [*question.buttons] == ["1. Retry", "2. Go on without"]
        if not restart:
            await bot.press(question, "1. Retry")
            await bot.answered(thread, "it is done")
    if restart:
        async with bot.running(*end) as model:
            await bot.press(question, "1. Retry")
            await bot.answered(thread, "it is done")
            await closed(bot, thread, ": 1. Retry")
    assert "sunny" in answer_in(model)
