"""Open questions that only a person may decide or answer. The first answer counts.

| open here, for this person | an answer with an id | without one        | a no to "all"   |
|----------------------------|----------------------|--------------------|-----------------|
| none                       | there is no such     | there is no such   | there is no such |
| one                        | that one             | that one           | that one        |
| several                    | that one             | they are named     | each of them    |

There is no yes to all, because a new question may come up while a person types. For the same reason a yes without an
id counts only for a question that is posted. A button carries the id of its question.

A question is about a decision or about an answer, and neither kind takes what is meant for the other: an answer in
words approves nothing, whatever it says. Of a thread's questions about an answer one is open at a time, so that a
message that its asker types has one meaning.

Questions are in memory only. After a restart an interrupted turn asks again under the same id, so an old button still
finds its question. A press before that waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from threads import wording
from threads.model import Answer, Question, QuestionKind, ThreadId


@dataclass(slots=True)
class OpenQuestion:
    """A question of a message's turn, which may be answered once. ``posted``: the thread can read it."""

    question: Question
    message_id: str = ""
    posted: bool = False
    answer: Answer | None = None
    decided: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)

    async def wait(self) -> Answer:
        """Return the answer. If none came in time, it is a no with a blank ``by``."""
        with anyio.move_on_after(self.question.within_s):
            await self.decided.wait()
        self.answer = self.answer or Answer(approved=False, by="")
        return self.answer

    def take(self, answer: Answer) -> str:
        """Accept an answer from a person who may give it, unless it has a fault. Returns the reply to that person."""
        in_words = self.question.kind == "answer"
        if (answer.approved or in_words) and (fault := self.question.fault(answer.words)):
            return fault
        self.answer = answer
        self.decided.set()
        return wording.APPROVED if answer.approved or in_words else wording.DENIED

    async def give(self, answer: Answer) -> str:
        """Accept an answer as `take` does. Returns once the question is closed, if it was accepted."""
        reply = self.take(answer)
        if self.answer is answer:
            await self.closed.wait()
        return reply


class Questions:
    """All open questions, by thread and id."""

    def __init__(self) -> None:
        self._open: dict[ThreadId, dict[str, OpenQuestion]] = {}

    @contextmanager
    def open(
        self, thread: ThreadId, question_id: str, question: Question, message_id: str = ""
    ) -> Iterator[OpenQuestion]:
        """Keep a question of a message's turn open during the block.

        Enter it before posting: an answer may be faster than the post.
        """
        opened = OpenQuestion(question, message_id)
        of_thread = self._open.setdefault(thread, {})
        of_thread[question_id] = opened
        try:
            yield opened
        finally:
            opened.closed.set()
            del of_thread[question_id]
            if not of_thread:
                del self._open[thread]

    async def decide(
        self, thread: ThreadId, question_id: str, answer: Answer, kind: QuestionKind = "decision"
    ) -> str:
        """Answer a question of this kind, and return the reply to who answered. A blank id means the only open one.

        Returns once the question is closed, so the answering message stays pending until a crash cannot undo it.
        """
        waiting = self._waiting(thread, kind)
        if question_id:
            waiting = {id_: one for id_, one in waiting.items() if id_ == question_id}
        elif (answer.approved or kind == "answer") and waiting:
            waiting = {id_: one for id_, one in waiting.items() if one.posted}
            if not waiting:
                return wording.QUESTION_UNREAD
        allowed = {id_: one for id_, one in waiting.items() if one.question.may_answer(answer.by)}
        if not waiting:
            other = self._is_other_kind_open(thread, question_id, kind)
            return wording.OTHER_KIND[kind] if other else wording.NO_QUESTION
        if not allowed:
            return wording.NOT_YOURS
        if len(allowed) > 1 and not answer.declines_all:
            return wording.which_question(
                [(id_, one.question.brief or one.question.about) for id_, one in allowed.items()]
            )
        replies = [one.take(answer) for one in allowed.values()]
        for one in allowed.values():
            if one.answer is answer:
                await one.closed.wait()
        return replies[0]

    def find(self, thread: ThreadId, same: str) -> str:
        """Return the id of the open question whose ``same`` ends with *same*, or ""."""
        of_thread = self._open.get(thread, {}).items()
        return next((id_ for id_, one in of_thread if one.question.same.endswith(same)), "")

    def awaiting(self, thread: ThreadId, author: str, text: str) -> OpenQuestion | None:
        """Return the open question whose answer is a message that this person types, or None."""
        return next(
            (
                one
                for one in self._waiting(thread, "answer").values()
                if one.posted and one.question.asker == author
                if one.question.free_text or one.question.option(text)
            ),
            None,
        )

    def _waiting(self, thread: ThreadId, kind: QuestionKind) -> dict[str, OpenQuestion]:
        """Return the unanswered questions of this kind by id."""
        of_thread = self._open.get(thread, {})
        return {
            id_: one for id_, one in of_thread.items() if one.answer is None and one.question.kind == kind
        }

    def _is_other_kind_open(self, thread: ThreadId, question_id: str, kind: QuestionKind) -> bool:
        """Return whether this question is of the other kind, or any open one if the id is blank."""
        of_thread = self._open.get(thread, {}).items()
        return any(one.question.kind != kind for id_, one in of_thread if question_id in ("", id_))

    def is_open(self, thread: ThreadId, question_id: str = "") -> bool:
        """Return whether this question of the thread is open, or any if the id is blank."""
        of_thread = self._open.get(thread, {})
        return question_id in of_thread if question_id else bool(of_thread)
