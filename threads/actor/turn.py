"""One turn in progress, as the agent and the actor use it."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

import anyio

from threads import wording
from threads.delivery import Delivery, retry_until_stored
from threads.errors import StoreUnavailable
from threads.journal.ports import Write
from threads.journal.records import PendingMessage
from threads.model import (
    Answer,
    Choice,
    Earlier,
    File,
    Image,
    Incoming,
    Message,
    Option,
    Question,
    QuestionClosed,
    Resumed,
    Run,
    SentFile,
    Text,
    TextDelta,
    TextReset,
    TurnEvent,
    TurnLimits,
    Waiting,
)
from threads.ports import Store
from threads.scheduled_messages import headings
from threads.store.attachments import sent_files
from threads.store.thread_files import ThreadFiles

from .conversation import Conversation
from .mailbox import Mailbox
from .questions import Questions
from .slots import Slots

MOST_OPEN = 8
"""Open questions of one turn. The next one is asked when one of these is decided."""


def correlation_id(key: str, attempt: int) -> str:
    """Return the id that joins a thread's text, the log and the audit: eight hex digits, the same after a restart."""
    return hashlib.sha256(f"{key}#{attempt}".encode("utf-8", "replace")).hexdigest()[:8]


def _verb(question: Question, option: Option) -> str:
    """Return the command of an option."""
    if question.kind == "answer":
        return "answer"
    return "approve" if option.approve else "deny"


def _closed(key: str, question: Question, answer: Answer) -> QuestionClosed:
    option = question.option(answer.words) if question.kind == "answer" and answer.by else None
    return QuestionClosed(key, answer.approved, answer.by, question.kind, option.label if option else "")


@dataclass(frozen=True, slots=True)
class ActorParts:
    """What all actors share.

    ``on_error`` records an exception with its message and its reference. ``explain`` returns the text about it for
    the thread.
    """

    store: Store
    delivery: Delivery
    slots: Slots
    limits: TurnLimits
    run: Run
    files: ThreadFiles
    on_error: Callable[[Exception, PendingMessage, str], None]
    explain: Callable[[Exception, PendingMessage, str], str]
    now: Callable[[], datetime]
    questions: Questions = field(default_factory=Questions)


class ActorTurn:
    """A `threads.model.Turn`. ``notes`` go above the answer, once each.

    ``scope`` has the turn's deadline, once it runs. ``done`` is set at its end.
    ``started`` is the write of its ``started`` record. Nobody sees anything of the turn before that is durable. While
    the disk refuses, events are held back.
    """

    def __init__(
        self, pending: PendingMessage, conversation: Conversation, mailbox: Mailbox, shared: ActorParts
    ) -> None:
        self.incoming, self.known_answer, self.stopped_by = pending.incoming, "", ""
        self.notes, self.attempt = headings(pending.incoming), pending.attempts + 1
        self.correlation_id = correlation_id(pending.incoming.key, self.attempt)
        self.started: Write | None = None
        self._pending, self._conversation, self.messages = pending, conversation, conversation.messages
        self._mailbox, self._shared = mailbox, shared
        self.scope, self.done = anyio.CancelScope(), asyncio.Event()
        self._held, self._shown, self._shown_before = list[TurnEvent](), "", list[str]()
        self._holds_slot, self._asked, self._open, self._left = False, 0, 0, math.inf

    @cached_property
    def _room_to_ask(self) -> anyio.Semaphore:
        return anyio.Semaphore(MOST_OPEN)

    @property
    def timed_out(self) -> bool:
        return self.scope.cancel_called and not self.stopped_by

    @property
    def shown(self) -> str:
        """Return what people saw of the answer so far."""
        parts = () if self._held else (*self._shown_before, self._shown)
        return "\n\n".join(part.strip() for part in parts if part.strip())

    @property
    def place(self) -> int:
        """Where its first message is in the conversation; the end, if it has none there yet."""
        own = (n for n, one in enumerate(self.messages) if self._is_own(one.source))
        return next(own, len(self.messages))

    @property
    def joined(self) -> bool:
        """Whether other messages are part of it."""
        return any(one.source and not self._is_own(one.source) for one in self.messages[self.place :])

    def _is_own(self, source: str) -> bool:
        """Return whether a message of the conversation is of this turn, or of a part of it that has an id below."""
        return source == self.incoming.id or source.startswith(f"{self.incoming.id}.")

    async def stop(self, by: str) -> None:
        """Cancel the turn, and return when it is over. ``by`` is the id of the request."""
        self.stopped_by = by
        self.scope.cancel()
        await self.done.wait()

    def add(self, *messages: Message) -> None:
        at = self._shared.now().isoformat(timespec="milliseconds")
        self.messages.extend([message.stamped(at) for message in messages])
        self._shown_before.append(self._shown)
        self._conversation.saved, self._shown = False, ""

    def replace_messages(self, messages: list[Message]) -> None:
        self.messages.replace(messages)
        self._conversation.saved = False

    async def compact(self, messages: list[Message]) -> None:
        await self._conversation.copy_to_archive()
        self.replace_messages(messages)
        await self.checkpoint()

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @cached_property
    def _one_answer(self) -> anyio.Lock:
        """Held while a question about an answer is open: what its asker types then has one meaning."""
        return anyio.Lock()

    async def ask(self, question: Question) -> Answer | None:
        await self.begun()
        async with self._one_answer if question.kind == "answer" else nullcontext(), self._room_to_ask:
            return await self._ask(question)

    async def _ask(self, question: Question) -> Answer | None:
        self._asked += 1
        what = question.same or f"{question.text} {question.options} {self._asked}"
        # The same after a restart, if all is the same.
        question_id = f"q{correlation_id(f'{self.incoming.key} {what}', 0)}"
        choices = tuple(
            Choice(o.label, f"/{_verb(question, o)} {question_id} {o.words}".rstrip())
            for o in question.options
        )
        opening = self._shared.questions.open(self.incoming.thread, question_id, question, self.incoming.id)
        with opening as open_question:
            if not await self._shared.delivery.ask(self._pending, question_id, question.text, choices):
                return None
            open_question.posted = True
            with self._clock_stopped():
                if self._open == 1:
                    await self.tell(Waiting(question.about, math.inf))
                try:
                    answer = await open_question.wait()
                except BaseException:
                    if self.stopped_by:
                        key = f"{self.incoming.key}?{question_id}"
                        closed = QuestionClosed(key, approved=False, kind=question.kind, stopped=True)
                        self._shared.delivery.close_question(self._pending, question.text, closed)
                    raise
            await question.keep(answer)
        closed = _closed(f"{self.incoming.key}?{question_id}", question, answer)
        self._shared.delivery.close_question(self._pending, question.text, closed)
        await self.tell(closed)
        if not self._open:
            await self.tell(Resumed())
        return answer

    @contextmanager
    def _clock_stopped(self) -> Iterator[None]:
        """Stop the turn's clock while any of its questions is open."""
        if not self._open:
            self._left, self.scope.deadline = self.scope.deadline - anyio.current_time(), math.inf
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self.scope.deadline = anyio.current_time() + self._left

    async def checkpoint(self) -> None:
        if not await self._conversation.checkpoint(self.tell):
            self.note(wording.NOT_SAVED)
        await self.begun()

    async def begun(self) -> None:
        """Return when the start of the turn is durable, and show the held events. Raises `StoreUnavailable`."""
        if self.started is not None and self._pending.attempts < self.attempt:
            await self._shared.store.journal.durable(self.started)
        for event in self._held:
            self._shared.delivery.show(self._pending, event)
        self._held.clear()

    async def begin(self) -> None:
        """Wait for a slot, then begin to write the start of the turn. The wait is not an attempt.

        The write is awaited if the message may have killed an earlier process, if an edit is being written, and if
        the disk has refused it once, so that the model is not paid again.
        """
        await self.acquire()
        awaited = self._pending.recovered or self._pending.begun or self._pending.edits
        write = self._shared.store.journal.put if awaited else self._shared.store.journal.carry
        start = self._pending.start(self.attempt, self.correlation_id)
        self.started, self._pending.begun = write(start), True
        if awaited:
            await self.begun()
        self.incoming = self._pending.incoming  # with its last edit

    async def attachments(self, incoming: Incoming) -> Sequence[File]:
        files = await self.fetch(sent_files(incoming))
        for file in files:
            if file.problem:
                self.note(wording.unread(file.name, file.problem))
            elif file.missing:
                self.note(wording.partly_read(file.name, file.missing))
        return files

    async def bytes_of(self, file: File) -> bytes:
        return await self._shared.files.bytes_of(self.incoming.thread, file)

    async def with_text(self, file: File, text: str) -> File:
        return await self._shared.files.with_text(self.incoming.thread, file, text)

    async def earlier(self, incoming: Incoming) -> Earlier:
        if (after := self._conversation.read_upto) is None:
            return Earlier()
        found = await self._shared.files.earlier(incoming, after, self.note)
        return self._conversation.without_known(found, incoming)

    async def sent_files(self) -> Sequence[SentFile]:
        return await self._shared.files.sent_to(self.incoming.thread)

    async def fetch(self, sent: Sequence[SentFile]) -> Sequence[File]:
        return await self._shared.files.fetch(self.incoming.thread, sent)

    async def picture(self, image: Image) -> Image:
        return await self._shared.files.picture(self.incoming.thread, image)

    async def attach(self, call_id: str, file: Path, name: str) -> None:
        source = self._shared.files.source(self.incoming.thread.transport)
        await source.attach(self.incoming.thread, f"{self.incoming.key}+{call_id}", file, name)

    async def steer(self, render: Callable[[Incoming], Awaitable[Message]]) -> None:
        if len(self._mailbox) and self._shared.limits.busy == "steer":
            await self._merge(lambda o: not (o.incoming.first or o.incoming.replaces), render)

    async def recognise(self) -> None:
        """Settle messages that joined this turn before a crash. They are in the conversation already."""
        sources = self._sources("user")
        await self._merge(lambda pending: pending.received.message_id in sources)

    async def tell(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._shown += text
            case TextReset():
                self._shown = ""
            case Waiting():
                self.release()
            case Resumed():
                self._retake()
        self._held.append(event)
        with suppress(StoreUnavailable):  # the turn goes on, and its outcome waits for the disk
            await self.begun()

    async def acquire(self) -> None:
        if not self._holds_slot:
            await self._shared.slots.acquire(self.incoming.author.id)
            self._holds_slot = True

    def _retake(self) -> None:
        if not self._holds_slot:
            self._shared.slots.retake(self.incoming.author.id)
            self._holds_slot = True

    def release(self) -> None:
        if self._holds_slot:
            self._holds_slot = False
            self._shared.slots.release(self.incoming.author.id)

    def add_interrupted_text(self) -> None:
        """Add the visible text of an interrupted answer to the conversation, with a note."""
        if self._shown.strip() and not self._held:
            self.add(Message("assistant", (Text(f"{self._shown}\n\n{wording.INTERRUPTED}"),)))

    async def _merge(
        self,
        which: Callable[[PendingMessage], bool],
        render: Callable[[Incoming], Awaitable[Message]] | None = None,
    ) -> None:
        """Settle matching messages as part of this turn, except those that already have an answer of their own.

        If they do not become durable in the conversation, or are not settled, each gets a turn of its own.
        """
        done, before = self._sources("assistant"), len(self.messages)
        try:
            with self._mailbox.withdrawing(
                lambda o: which(o) and o.received.message_id not in done
            ) as joined:
                if not joined:
                    return
                sources = self._sources("user")
                if render and (new := [o.incoming for o in joined if o.received.message_id not in sources]):
                    for incoming in new:  # each has the lines since the one before
                        self.add(await render(incoming))
                    if not await self._conversation.checkpoint(self.tell):
                        self.messages.replace(self.messages[:before])
                        self._mailbox.put_back(joined)
                        return
                    await self.begun()
                await retry_until_stored(lambda: self._settle_merged(joined))
        except BaseException:
            if len(self.messages) > before:  # with its text of now: an edit may come before its turn
                self.replace_messages(self.messages[:before])
            raise

    async def _settle_merged(self, joined: list[PendingMessage]) -> None:
        with anyio.CancelScope(shield=True):  # a write that has begun cannot be undone
            await self._shared.delivery.cover(joined, "merged", self.incoming.id)

    def _sources(self, role: Literal["user", "assistant"]) -> set[str]:
        """Return the ids of the messages that are in the conversation, or whose answers are, by *role*."""
        return {message.source for message in self.messages if message.source and message.role == role}
