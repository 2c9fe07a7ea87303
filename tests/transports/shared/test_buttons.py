"""Which questions are open, and how one ended. Presses: `tests.transports.test_presses_over_chat`."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest

from tests.world import message
from threads.model import Incoming, QuestionClosed
from transports.shared.buttons import OpenQuestions, Presses


def test_the_questions_of_a_message_are_known_by_its_key():
    questions = OpenQuestions()
    questions.update({"k?1": "a", "k?2": "b", "k1?1": "c"})
    assert questions.pop_all_of("k") == ["a", "b"]
    assert questions.pop_all_of("k") == []


@pytest.mark.parametrize(
    ("closed", "who", "text"),
    [
        (QuestionClosed("k", approved=True, by="U1"), "Ann", "Approved by Ann."),
        (QuestionClosed("k", approved=False, by="U1"), "", "Declined."),
        (QuestionClosed("k", approved=False), "", "Nobody decided in time."),
        (QuestionClosed("k", False, "U1", "answer", "1. Red"), "Ann", "Answered by Ann: 1. Red"),
        (QuestionClosed("k", False, "U1", "answer"), "", "Answered."),
        (QuestionClosed("k", False, "", "answer"), "", "Nobody answered in time."),
    ],
)
def test_a_closed_question_says_how_it_ended_and_an_answer_never_reads_like_an_approval(closed, who, text):
    assert closed.decision(who) == text


@dataclass(frozen=True)
class Press:
    incoming: Incoming
    place: str = "p"
    ephemeral: bool = False


@pytest.mark.anyio
async def test_two_presses_at_once_of_a_button_that_a_death_left_are_both_taken():
    presses, press, known, gone = Presses(OpenQuestions()), Press(message(1, "/retry m0")), anyio.Event(), []

    async def take(_):
        await known.wait()  # as for a store that has to be asked
        return "answered"

    async def click(number):
        gone.append(await presses.hand_over(press, number, take))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(click, "1")
        tasks.start_soon(click, "2")
        await anyio.wait_all_tasks_blocked()
        known.set()
    assert gone == [True, True]
