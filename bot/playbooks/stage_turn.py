"""One attempt of a stage as a turn of its own, inside the turn of the `/play` message, and the time that it takes."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path

import anyio

from threads.model import (
    Answer,
    Earlier,
    File,
    Image,
    Incoming,
    Message,
    Question,
    SentFile,
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

    @property
    def paying(self) -> StageTurn:
        """Return the same turn with the message that plays, whose account pays for all stages."""
        paying = copy(self)
        paying.incoming = self.playing.incoming
        return paying

    @property
    def attempt(self) -> int:
        return self.playing.attempt

    @property
    def correlation_id(self) -> str:
        return self.playing.correlation_id

    @property
    def timed_out(self) -> bool:
        return self._clock.scope.cancel_called

    @property
    def messages(self) -> list[Message]:
        return self.playing.messages

    def add(self, *messages: Message) -> None:
        self.playing.add(*messages)

    def replace_messages(self, messages: list[Message]) -> None:
        self.playing.replace_messages(messages)

    async def compact(self, messages: list[Message]) -> None:
        await self.playing.compact(messages)

    def note(self, text: str) -> None:
        self.playing.note(text)

    async def ask(self, question: Question) -> Answer | None:
        """Ask as `Turn.ask`; a question is the same after a restart, whatever earlier stages have asked."""
        self._asked += 1
        same = question.same or f"{question.text} {question.options} {self._asked}"
        with self._clock.stopped():
            return await self.playing.ask(replace(question, same=f"{self._visit_id} {same}"))

    async def checkpoint(self) -> None:
        await self._keep_files()
        await self.playing.checkpoint()

    async def attachments(self, incoming: Incoming) -> Sequence[File]:
        return await self.playing.attachments(incoming)

    async def bytes_of(self, file: File) -> bytes:
        return await self.playing.bytes_of(file)

    async def with_text(self, file: File, text: str) -> File:
        return await self.playing.with_text(file, text)

    async def earlier(self, incoming: Incoming) -> Earlier:
        return await self.playing.earlier(incoming)

    async def sent_files(self) -> Sequence[SentFile]:
        return await self.playing.sent_files()

    async def fetch(self, sent: Sequence[SentFile]) -> Sequence[File]:
        return await self.playing.fetch(sent)

    async def picture(self, image: Image) -> Image:
        return await self.playing.picture(image)

    async def attach(self, call_id: str, file: Path, name: str) -> None:
        await self.playing.attach(f"{self._visit_id}.{call_id}", file, name)

    async def steer(self, render: Callable[[Incoming], Awaitable[Message]]) -> None:
        await self.playing.steer(render)

    async def tell(self, event: TurnEvent) -> None:
        if not isinstance(event, TextDelta | TextReset | ThinkingDelta):
            await self.playing.tell(event)
