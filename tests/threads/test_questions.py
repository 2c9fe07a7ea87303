"""A question counts an answer only of somebody who could read it."""

from __future__ import annotations

import anyio
import pytest

from tests.world import ANN, T1
from threads import wording
from threads.actor.questions import Questions
from threads.model import Answer, Option, Question

pytestmark = pytest.mark.anyio

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
