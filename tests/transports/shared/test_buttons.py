"""Which buttons go when they are pressed, which stay with their draft or question, and which questions are open."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.world import message
from threads.model import Incoming, QuestionClosed, Taken
from transports.shared.buttons import OpenQuestions, Presses


@dataclass(frozen=True)
class Press:
    incoming: Incoming
    ephemeral: bool = False


@pytest.mark.parametrize(
    ("command", "goes"),
    [
        ("/retry m1", True),
        ("/stop", False),
        ("/approve q1 once", False),
        ("/deny", False),
        ("/answer q1 #1", False),
    ],
)
def test_a_button_goes_when_its_press_is_taken_but_for_those_of_a_draft_or_a_question(command, goes):
    presses, press = Presses(), Press(message(1, command))
    presses.add(press)
    assert presses.pop_accepted("m1", Taken(again=False, text=command)) == (press if goes else None)


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
