"""Questions that only a person may decide: one waits, another answers, and the first answer counts.

| open here, for this person | an answer with an id | without one        | a no to "all"   |
|----------------------------|----------------------|--------------------|-----------------|
| none                       | there is no such     | there is no such   | there is no such |
| one                        | that one             | that one           | that one        |
| several                    | that one             | they are named     | each of them    |

There is no yes to all: a question may be asked between what a person read and what they typed. For the same reason a
yes without an id counts only for a question that is posted. A button has the id of the question that it stands under.

Kept in memory only. A turn that is cut asks again after the restart, under the same id, so that an old button still
finds its question; what is pressed before that waits until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from threads import wording
from threads.model import Answer, Question, ThreadId


@dataclass(slots=True)
class OpenQuestion:
    """A question that may be answered, once; ``posted`` once the thread can read it."""

    question: Question
    posted: bool = False
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
        """Take the answer of somebody who may give it, if it counts; return what to tell them."""
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
        """Answer a question of the thread, and return what to tell who did; a blank id means the only open one.

        Returns when the question is closed: an answer that a crash could still take back stays pending as long.
        """
        waiting = {id_: asked for id_, asked in self._open.get(thread, {}).items() if asked.answer is None}
        if question_id:
            waiting = {id_: asked for id_, asked in waiting.items() if id_ == question_id}
        elif answer.approved and waiting:
            waiting = {id_: asked for id_, asked in waiting.items() if asked.posted}
            if not waiting:
                return wording.QUESTION_UNREAD
        mine = {id_: asked for id_, asked in waiting.items() if asked.question.may_answer(answer.by)}
        if not waiting:
            return wording.NO_QUESTION
        if not mine:
            return wording.NOT_YOURS
        if len(mine) > 1 and not answer.declines_all:
            return wording.which(
                [(id_, asked.question.brief or asked.question.about) for id_, asked in mine.items()]
            )
        told = [asked.take(answer) for asked in mine.values()]
        for asked in mine.values():
            if asked.answer is answer:
                await asked.closed.wait()
        return told[0]

    def is_open(self, thread: ThreadId, question_id: str = "") -> bool:
        """Return whether this question of the thread is open, or any."""
        of_thread = self._open.get(thread, {})
        return question_id in of_thread if question_id else bool(of_thread)
