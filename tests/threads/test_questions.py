"""A question counts an answer only of somebody who could read it, and only one that is meant for it."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from tests.world import ANN, T1, T2
from threads import wording
from threads.actor.questions import Questions
from threads.model import Answer, Option, Question, chosen

QUESTION = Question("May I?", (Option("Yes", approve=True), Option("No", approve=False)), lambda _: True)
YES, NO = Answer(approved=True, by=ANN.id), Answer(approved=False, by=ANN.id)


async def test_a_yes_without_an_id_does_not_count_before_the_question_is_posted():
    questions = Questions()
    with questions.open(T1, "q1", QUESTION) as question:
        assert await questions.decide(T1, "", YES) == wording.QUESTION_UNREAD
        assert question.answer is None
        question.posted = True
        question.closed.set()
        assert await questions.decide(T1, "", YES) == wording.APPROVED
        assert question.answer == YES


@pytest.mark.parametrize(("question_id", "answer"), [("q1", YES), ("", NO)])
async def test_a_button_and_a_no_count_while_the_post_has_not_returned(question_id, answer):
    questions = Questions()
    with questions.open(T1, "q1", QUESTION) as question:
        question.closed.set()
        with anyio.fail_after(1):
            await questions.decide(T1, question_id, answer)
        assert question.answer == answer


OPTIONS = (Option("1. Red", approve=False, words="#1"), Option("2. Dark blue", approve=False, words="#2"))
COLOUR = Question("Which?", OPTIONS, lambda _: True, kind="answer", asker=ANN.id)
WORDS = Answer(approved=False, by=ANN.id, words="red")


@pytest.mark.parametrize("question_id", ["q1", ""])
async def test_neither_kind_of_question_takes_what_is_meant_for_the_other(question_id):
    questions = Questions()
    for question, answer, kind in ((QUESTION, WORDS, "answer"), (COLOUR, YES, "decision")):
        with questions.open(T1, "q1", question) as opened:
            opened.posted = True
            assert await questions.decide(T1, question_id, answer, kind) == wording.OTHER_KIND[kind]
            assert opened.answer is None


async def test_an_answer_in_words_is_no_yes():
    questions = Questions()
    with questions.open(T1, "q1", COLOUR) as opened:
        opened.posted = True
        opened.closed.set()
        assert await questions.decide(T1, "", WORDS, "answer") == wording.APPROVED
        assert opened.answer == WORDS
        assert not opened.answer.approved


def test_what_the_asker_types_is_awaited_once_the_question_can_be_read():
    questions = Questions()
    with questions.open(T1, "q1", COLOUR, "m1") as opened:
        assert questions.awaiting(T1, ANN.id, "red") is None
        opened.posted = True
        assert questions.awaiting(T1, ANN.id, "red") is opened
        assert questions.awaiting(T1, ANN.id, "a word with you") is None
        assert questions.awaiting(T1, "U9", "red") is None
        assert questions.awaiting(T2, ANN.id, "red") is None
        opened.answer = WORDS
        assert questions.awaiting(T1, ANN.id, "red") is None
    with questions.open(T1, "q2", replace(COLOUR, free_text=True)) as opened:
        opened.posted = True
        assert questions.awaiting(T1, ANN.id, "anything") is opened


@pytest.mark.parametrize(
    ("words", "label"),
    [
        ("red", "1. Red"),
        (" Dark  BLUE ", "2. Dark blue"),
        ("#2", "2. Dark blue"),
        ("1", "1. Red"),
        ("2. dark blue", "2. Dark blue"),
    ],
)
def test_an_option_is_chosen_by_its_label_its_number_or_its_own_words(words, label):
    assert chosen(OPTIONS, words).label == label
    assert chosen(OPTIONS, f"{words}!") is None
