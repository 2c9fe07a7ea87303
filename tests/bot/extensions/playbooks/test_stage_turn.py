"""The turn of a stage: an id of its own, a clock that stops for people, and no text of the model on the screen."""

from types import SimpleNamespace

import anyio
import pytest

from bot.extensions.playbooks.stage_turn import StageClock, StageTurn
from tests.sim.loop import virtual_time
from tests.world import message
from threads.model import Answer, Option, Question, TextDelta, ToolStarted
from threads.scheduled_messages import due_of, is_command

anyio_backend = virtual_time


class Playing(SimpleNamespace):
    """A turn that remembers what is asked and told."""

    def __init__(self, incoming=message(1, "/play x"), answer_after=0.0):
        super().__init__(incoming=incoming, messages=[], events=[], questions=[])
        self.answer_after = answer_after

    def __getattr__(self, name):
        """Have nothing else that a stage takes from its turn."""

    async def tell(self, event):
        self.events.append(event)

    async def ask(self, question):
        self.questions.append(question)
        await anyio.sleep(self.answer_after)
        return Answer(approved=True, by="U1")


async def no_files():
    pass


def question(text="Really?"):
    return Question(text, (Option("Yes", approve=True),), lambda _: True)


async def test_the_clock_ends_an_attempt_and_waiting_for_a_person_does_not_count():
    clock = StageClock(10)
    turn = StageTurn(Playing(answer_after=3600), "one.1.1", "Do it.", clock, no_files)
    with clock.scope:
        await anyio.sleep(4)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.ask, question())
            tasks.start_soon(turn.ask, question("And this?"))
        assert clock.worked_s == pytest.approx(4)
        await anyio.sleep(100)
        pytest.fail("it is not ended")
    assert clock.scope.cancelled_caught
    assert clock.worked_s == pytest.approx(10)


async def test_its_questions_are_the_same_after_a_restart_and_others_in_another_stage():
    asked = []
    for visit in ("one.1.1", "one.1.1", "two.2.1"):
        playing = Playing()
        turn = StageTurn(playing, visit, "Do it.", StageClock(10), no_files)
        await turn.ask(question())
        await turn.ask(question())
        asked.append([one.same for one in playing.questions])
    assert asked[0] == asked[1]
    assert len({*asked[0], *asked[2]}) == 4


async def test_its_files_are_stored_before_the_conversation_that_names_them():
    playing, order = Playing(), []

    async def keep_files():
        order.append("files")

    async def checkpoint():
        order.append("conversation")

    playing.checkpoint = checkpoint
    await StageTurn(playing, "one.1.1", "Do it.", StageClock(10), keep_files).checkpoint()
    assert order == ["files", "conversation"]


async def test_its_text_is_not_shown_and_its_tools_are():
    playing = Playing()
    turn = StageTurn(playing, "one.1.1", "Do it.", StageClock(10), no_files)
    await turn.tell(TextDelta("thinking aloud"))
    await turn.tell(ToolStarted("read_file"))
    assert playing.events == [ToolStarted("read_file")]


async def test_its_message_is_its_own_and_the_one_that_pays_is_that_of_the_play():
    turn = StageTurn(Playing(), "one.1.1", "Do it.", StageClock(10), no_files)
    assert (turn.incoming.id, turn.incoming.text) == ("m1.one.1.1", "Do it.")
    assert turn.paying.incoming.id == "m1"
    assert turn.incoming.id == "m1.one.1.1"


async def test_a_stage_of_a_scheduled_playbook_is_scheduled_too():
    scheduled = "play-schedule-s1-1764000000.one.1.1"
    assert due_of(scheduled) is not None
    assert is_command(scheduled)
    assert not is_command("schedule-s1-1764000000")
    assert not is_command("x-play-schedule-s1-1764000000")
