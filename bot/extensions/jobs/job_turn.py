"""A job as a turn of its own: nobody reads along, nobody can be asked, and no message joins it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio

from bot.extensions.jobs.records import Job, JobStore
from threads.errors import PostFailed
from threads.model import (
    Answer,
    Earlier,
    File,
    Image,
    Incoming,
    Message,
    Question,
    SentFile,
    Text,
    ThreadId,
    TurnEvent,
)
from threads.model.conversation import History

NO_FILES = "A job cannot post files: its report can name them, and a turn of the thread can post them."
LEFT_AFTER_OUTSIDE = "What left you this work had read text from outside before."


class JobTurn:
    """A `threads.model.Turn`. ``scope`` ends it at its time."""

    known_answer = ""

    def __init__(
        self,
        job: Job,
        store: JobStore,
        keep_workspace: Callable[[ThreadId], Awaitable[None]],
        scope: anyio.CancelScope,
    ) -> None:
        self.incoming, self.attempt = job.incoming, job.attempts
        self.correlation_id, self.notes = job.id, list[str]()
        self.messages = History()
        self.messages.extend(store.messages(job))
        self._job, self._store, self._scope, self._keep_workspace = job, store, scope, keep_workspace
        if job.outside and not self.messages:
            self.add(Message("user", (Text(LEFT_AFTER_OUTSIDE, outside=True),)))

    @property
    def timed_out(self) -> bool:
        return self._scope.cancel_called

    def add(self, *messages: Message) -> None:
        at = self._store.now().isoformat(timespec="milliseconds")
        self.messages.extend([message.stamped(at) for message in messages])

    def replace_messages(self, messages: list[Message]) -> None:
        self.messages.replace(messages)

    async def compact(self, messages: list[Message]) -> None:
        self.replace_messages(messages)
        await self.checkpoint()

    async def checkpoint(self) -> None:
        # What the conversation says of its files holds anywhere.
        await self._keep_workspace(self.incoming.thread)
        await self._store.save(self._job, self.messages)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    async def ask(self, question: Question) -> Answer | None:  # noqa: ARG002
        return None

    async def attachments(self, incoming: Incoming) -> Sequence[File]:  # noqa: ARG002
        return ()

    async def bytes_of(self, file: File) -> bytes:
        raise FileNotFoundError(file.path)

    async def with_text(self, file: File, text: str) -> File:  # noqa: ARG002
        return file

    async def earlier(self, incoming: Incoming) -> Earlier:  # noqa: ARG002
        return Earlier()

    async def sent_files(self) -> Sequence[SentFile]:
        return ()

    async def fetch(self, sent: Sequence[SentFile]) -> Sequence[File]:  # noqa: ARG002
        return ()

    async def picture(self, image: Image) -> Image:
        return image

    async def attach(self, call_id: str, file: Path, name: str) -> None:  # noqa: ARG002
        raise PostFailed(NO_FILES)

    async def steer(self, render: Callable[[Incoming], Awaitable[Message]]) -> None:
        pass

    async def tell(self, event: TurnEvent) -> None:
        pass
