"""Questions that only a person may decide: one waits, another answers, and the first answer counts.

Kept in memory only. A turn that is cut asks again after the restart, under the same id, so that an old button still
finds its question.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import anyio

from .model import Answer, Question, ThreadId

ANSWER_WITHIN_S = 3600.0
"""A question that nobody answers for an hour is answered with no."""

Verdict = Literal["taken", "not_open", "not_yours"]


@dataclass(slots=True)
class OpenQuestion:
    """A question that may be answered, once."""

    question: Question
    answer: Answer | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self) -> Answer | None:
        """Return the answer; None when nobody gave one in time."""
        with anyio.move_on_after(ANSWER_WITHIN_S):
            await self.decided.wait()
        return self.answer


class Questions:
    """All questions that are open now, by thread and id."""

    def __init__(self) -> None:
        self._open: dict[ThreadId, dict[str, OpenQuestion]] = {}

    @contextmanager
    def open(self, thread: ThreadId, question_id: str, question: Question) -> Iterator[OpenQuestion]:
        """Hold a question open. Do so before it is posted: an answer may come before the post has returned."""
        asked = OpenQuestion(question)
        of_thread = self._open.setdefault(thread, {})
        of_thread[question_id] = asked
        try:
            yield asked
        finally:
            del of_thread[question_id]
            if not of_thread:
                del self._open[thread]

    def decide(self, thread: ThreadId, question_id: str, answer: Answer) -> Verdict:
        """Answer a question of the thread; a blank id means the oldest one that is open."""
        of_thread = {id_: asked for id_, asked in self._open.get(thread, {}).items() if asked.answer is None}
        asked = of_thread.get(question_id or next(iter(of_thread), ""))
        if asked is None:
            return "not_open"
        if not asked.question.may_answer(answer.by):
            return "not_yours"
        asked.answer = answer
        asked.decided.set()
        return "taken"
