"""Which buttons go when they are pressed, and what a second press of one comes to, in Slack and in Discord."""

from __future__ import annotations

import anyio

from bot.config.settings import Access, Recovery
from bot.ports.errors import ModelUnavailable
from bot.ports.model import Completion, Usage
from bot.routing.access import allowed
from tests.transports.settling import until_settled
from tests.world import Scripted, says
from threads.model import Option, Question

ROWS = {"slack": "blocks", "discord": "components"}
"""Where a fake keeps the buttons of a message."""


async def offered(chat, thread, command):
    """Return the post with a button for a command, and the value of the button."""

    def found():
        for post in chat.with_buttons(thread):
            yield from ((post, value) for value in post.buttons.values() if command in value)

    await chat.fake.until(lambda: any(found()))
    return next(found())


class Asks(Scripted):
    """A model whose first turn asks a person; the question is forgotten by the next process."""

    async def for_turn(self, turn):
        self.turn = turn
        return self

    async def complete(self, request, on_event):
        if len(request.messages) > 1:
            return Completion(says("something else"), Usage(1, 1), "end")
        question = Question(
            "Go on?",
            (Option("Yes", True), Option("No", False)),
            lambda who: who == self.turn.incoming.author.id,
        )
        answer = await self.turn.ask(question)
        return Completion(says(f"so: {answer.approved}"), Usage(1, 1), "end")


async def test_buttons_that_a_death_left_go_when_they_are_pressed_again_and_nothing_is_answered_twice(
    chat, tmp_path
):
    async with chat.running(tmp_path, Scripted(ModelUnavailable("down"), says("now it works"))):
        thread = await chat.ask()
        failed, again = await offered(chat, thread, "/retry")
        rows = getattr(chat.fake.message(failed.id), ROWS[chat.name])
        await chat.press(failed, again, chat.ann)
        await chat.fake.until(lambda: not chat.with_buttons(thread))
        await chat.fake.until(lambda: any("now it works" in text for text in chat.texts(thread)))
    setattr(chat.fake.message(failed.id), ROWS[chat.name], rows)
    model, before = Scripted(), len(chat.texts(thread))
    async with chat.running(tmp_path, model):
        await chat.press(failed, again, chat.ann)
        await chat.fake.until(lambda: not chat.with_buttons(thread))
    assert (model.requests, len(chat.texts(thread))) == ([], before)


async def press_until_told(chat, message, button, times):
    """Press as often as bob has to: until a press is settled, and a moment after, a second one is the same message."""
    while len(chat.alone(chat.bob)) < times:
        await chat.press(message, button, chat.bob)
        with anyio.move_on_after(5):
            await chat.fake.until(lambda: len(chat.alone(chat.bob)) >= times)


async def test_a_press_that_was_refused_can_be_made_again_when_it_is_allowed(chat, tmp_path):
    def only(*users):
        return lambda about: allowed(Access(users=users, channels=("*",)), about)

    down = Scripted(ModelUnavailable("down"))
    async with chat.running(tmp_path, down, allowed=only(chat.ann)):
        thread = await chat.ask()
        failed, again = await offered(chat, thread, "/retry")
        for times in (1, 2):
            await press_until_told(chat, failed, again, times)
            await until_settled(tmp_path, count=1 + times)
        assert chat.with_buttons(thread)
    async with chat.running(tmp_path, Scripted(says("now it works")), allowed=only(chat.ann, chat.bob)):
        await chat.press(failed, again, chat.bob)
        await chat.fake.until(lambda: any("now it works" in text for text in chat.texts(thread)))
        await chat.fake.until(lambda: not chat.with_buttons(thread))


async def test_the_buttons_of_a_question_that_is_not_open_any_more_go_when_they_are_pressed(chat, tmp_path):
    async with chat.running(tmp_path, Asks()):
        thread = await chat.ask()
        asked, yes = await offered(chat, thread, "/approve")
        for times in (1, 2):
            await press_until_told(chat, asked, yes, times)
            await until_settled(tmp_path, count=times)
        assert chat.with_buttons(thread)
    async with chat.running(tmp_path, Scripted(), recovery=Recovery(resume=False)):
        await until_settled(tmp_path, thread)
        await chat.press(asked, yes, chat.ann)
        await chat.fake.until(lambda: not chat.with_buttons(thread))
    assert any("Go on?" in text for text in chat.texts(thread))
