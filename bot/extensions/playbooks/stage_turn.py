"""One attempt of a stage as a turn of its own, inside the turn of the `/play` message, and the time that it takes."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path

import anyio

from threads.model import (
    Answer,
    Incoming,
    Message,
    Question,
    TextDelta,
    TextReset,
    ThinkingDelta,
    Turn,
    TurnEvent,
)


class StageClock:
    """Ends ``scope`` after so many seconds of work. Waiting for a person does not count."""

    def __init__(self, seconds: float) -> None:
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self._began, self._paused_s = anyio.current_time(), 0.0
        self._open, self._left = 0, math.inf

    @property
    def worked_s(self) -> float:
        return max(0.0, anyio.current_time() - self._began - self._paused_s)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock for the block. Blocks may overlap."""
        began = anyio.current_time()
        if not self._open:
            self._left, self.scope.deadline = self.scope.deadline - began, math.inf
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self.scope.deadline = anyio.current_time() + self._left
                self._paused_s += anyio.current_time() - began


class StageTurn:
    """A `threads.model.Turn`: the conversation, the people and the checkpoints are those of *turn*.

    Its message has an id of its own, ``<id>.<stage>.<visit>.<attempt>``, so that the agent goes on with this attempt
    after a crash. Its text is not shown: the stages are. *keep_files* stores the thread's files, so that what the
    conversation says of them holds for another worker too.
    """

    known_answer = ""

    def __init__(
        self,
        turn: Turn,
        visit_id: str,
        text: str,
        clock: StageClock,
        keep_files: Callable[[], Awaitable[None]],
    ) -> None:
        message_id = f"{turn.incoming.id}.{visit_id}"
        self.incoming: Incoming = replace(
            turn.incoming, id=message_id, text=text, first="", files=(), alias="", quoted=""
        )
        self.playing = turn
        self._visit_id, self._clock, self._asked = visit_id, clock, 0
        self._keep_files = keep_files
        self.attempt, self.correlation_id = turn.attempt, turn.correlation_id
        self.add, self.replace_messages, self.compact = turn.add, turn.replace_messages, turn.compact
        self.note, self.steer, self.earlier = turn.note, turn.steer, turn.earlier
        self.attachments, self.bytes_of, self.with_text = turn.attachments, turn.bytes_of, turn.with_text
        self.sent_files, self.fetch, self.picture = turn.sent_files, turn.fetch, turn.picture

    @property
    def paying(self) -> StageTurn:
        """Return the same turn with the message that plays, whose account pays for all stages."""
        paying = copy(self)
        paying.incoming = self.playing.incoming
        return paying

    @property
    def timed_out(self) -> bool:
        return self._clock.scope.cancel_called

    @property
    def messages(self) -> list[Message]:
        return self.playing.messages

    async def ask(self, question: Question) -> Answer | None:
        """Ask as `Turn.ask`; a question is the same after a restart, whatever earlier stages have asked."""
        self._asked += 1
        same = question.same or f"{question.text} {question.options} {self._asked}"
        with self._clock.stopped():
            return await self.playing.ask(replace(question, same=f"{self._visit_id} {same}"))

    async def checkpoint(self) -> None:
        await self._keep_files()
        await self.playing.checkpoint()

    async def attach(self, call_id: str, file: Path, name: str) -> None:
        await self.playing.attach(f"{self._visit_id}.{call_id}", file, name)

    async def tell(self, event: TurnEvent) -> None:
        if not isinstance(event, TextDelta | TextReset | ThinkingDelta):
            await self.playing.tell(event)
