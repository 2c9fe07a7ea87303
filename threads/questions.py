"""Questions that only a person may decide: one waits, another answers, and the first answer counts.

Kept in memory only. A turn that is cut asks again after the restart, under the same id, so that an old button still
finds its question; what is pressed before that waits until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from . import wording
from .model import Answer, Question, ThreadId


@dataclass(slots=True)
class OpenQuestion:
    """A question that may be answered, once."""

    question: Question
    answer: Answer | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self) -> Answer:
        """Return the answer: a no by nobody when none came in time."""
        with anyio.move_on_after(self.question.within_s):
            await self.decided.wait()
        self.answer = self.answer or Answer(approved=False, by="")
        return self.answer

    def take(self, answer: Answer) -> str:
        """Take the answer if it counts; return what to tell who gave it."""
        if not self.question.may_answer(answer.by):
            return wording.NOT_YOURS
        if answer.approved and (fault := self.question.fault(answer.words)):
            return fault
        self.answer = answer
        self.decided.set()
        return wording.APPROVED if answer.approved else wording.DENIED


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
            asked.closed.set()
            del of_thread[question_id]
            if not of_thread:
                del self._open[thread]

    async def decide(self, thread: ThreadId, question_id: str, answer: Answer) -> str:
        """Answer a question of the thread, and return what to tell who did; a blank id means the oldest open one.

        Returns when the question is closed: an answer that a crash could still take back is owed as long.
        """
        of_thread = {id_: asked for id_, asked in self._open.get(thread, {}).items() if asked.answer is None}
        asked = of_thread.get(question_id or next(iter(of_thread), ""))
        if asked is None:
            return wording.NO_QUESTION
        told = asked.take(answer)
        if asked.answer is answer:
            await asked.closed.wait()
        return told

    def any_open(self, thread: ThreadId) -> bool:
        """Return whether a question of the thread is open."""
        return thread in self._open
