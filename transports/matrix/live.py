"""The signs that the bot is at work: read, typing, the live draft, and a reaction to what ended without an answer.

| event                  | what is shown                                                           |
|------------------------|-------------------------------------------------------------------------|
| `Taken`                | the message is read                                                     |
| `TurnStarted`          | typing                                                                  |
| text, tools, waits     | the draft: a message that is edited until the final text takes it over  |
| `Waiting` for a person | no typing, until `Resumed`                                              |
| `TurnSettled`          | no typing; the draft is closed unless it was handed over                |

A homeserver takes ten messages at once and then one in five seconds from a user (Synapse's default), and each edit
counts: a draft is edited at that pace, and the rest is left for answers.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import anyio

from threads.errors import PostFailed
from threads.model import (
    Outcome,
    Resumed,
    StagesChanged,
    Taken,
    TextDelta,
    TextReset,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    Waiting,
    message_key,
)
from transports.matrix import render
from transports.matrix.api import Api
from transports.matrix.posting import Posting
from transports.matrix.values import Mark, decoded, room_of
from transports.shared.live import presence as shared
from transports.shared.live.activity import RunningTools, waiting_words
from transports.shared.live.presence import LiveMessage

log = logging.getLogger(__name__)

Streaming = Literal["edits", "progress", "off"]

EVERY_S, FIRST_AFTER_S = 5.0, 1.0
TYPING_S, TYPES_AGAIN_S = 30.0, 20.0
MOST_SHOWN = 100_000
MOST_JOBS = 2_000
SIGNS: dict[Outcome, str] = {"merged": "➕", "stopped": "🛑", "undelivered": "⚠️"}  # noqa: RUF001 - that is the sign


class LiveDraft:
    """The draft of the answer to a message. `feed` takes events in, `run` shows them."""

    lost = False

    def __init__(self, thread: ThreadId, message_id: str, posting: Posting, mode: Streaming) -> None:
        self._thread, self._message_id, self._posting, self._mode = thread, message_id, posting, mode
        self._key = message_key(thread, message_id)
        self._text, self._step, self._stages = "", 0, ""
        self._tools, self._waiting = RunningTools(), ""
        self._events: list[str] = []
        self._shown: list[str] = []
        self._changed, self._idle, self._ended = anyio.Event(), anyio.Event(), False
        self._scope = anyio.CancelScope()
        self._idle.set()

    @property
    def messages(self) -> tuple[LiveDraftMessage, ...]:
        return tuple(map(LiveDraftMessage, self._events))

    def feed(self, event: TurnEvent) -> None:
        """Take in what goes on in the turn. Never blocks; how much is kept is bounded."""
        match event:
            case TextDelta(text=text) if self._mode == "edits":
                self._text = (self._text + text)[:MOST_SHOWN]
            case TextReset():
                self._text = self._text[: self._step]
            case ToolStarted():
                self._tools.started(event)
                self._step = len(self._text)
            case ToolFinished():
                self._tools.finished(event)
            case Waiting():
                self._waiting = waiting_words(event).removeprefix("is ")
            case Resumed():
                self._waiting = ""
            case StagesChanged():
                self._stages = event.text
            case _:
                return
        self._changed.set()

    async def run(self) -> None:
        """Show the draft until it is over. A refusal ends it, and a rate limit is obeyed."""
        if self._ended:
            return
        self._idle = anyio.Event()
        try:
            with self._scope:
                await anyio.sleep(FIRST_AFTER_S)
                while True:
                    await self._changed.wait()
                    self._changed = anyio.Event()
                    await anyio.sleep(await self._update())
        except PostFailed as error:
            log.info("live.muted: %s", error)
        finally:
            self._idle.set()

    async def hand_over(self) -> tuple[str, ...]:
        """End all calls, and return the messages: the final text is written over them."""
        await self._end()
        return tuple(self._events)

    async def close(self, outcome: Outcome) -> None:
        """End the draft without a final text. Text stays, with how the turn ended; anything else is deleted."""
        if self._ended:
            return
        await self._end()
        if outcome == "withdrawn" or not self._text.strip():
            await self._posting.remove(self._thread, self._key)
            return
        ending = "stopped" if outcome == "stopped" else "not finished"
        last = len(self._events)
        text = f"{self._pages()[:last][-1]}\n\n*{ending}*" if last else ""
        if text:
            await self._posting.show(self._thread, self._message_id, Mark(self._key, last, of=last), text)

    async def _end(self) -> None:
        self._ended = True
        self._scope.cancel()
        await self._idle.wait()

    async def _update(self) -> float:
        """Show what is new, and return how long to wait before the next edit."""
        for part, text in enumerate(self._pages(), 1):
            if self._shown[part - 1 : part] == [text]:
                continue
            try:
                with anyio.CancelScope(shield=True):  # a message whose id is not known would stay
                    event = await self._posting.show(
                        self._thread, self._message_id, Mark(self._key, part, final=False), text
                    )
            except PostFailed as error:
                if not error.retryable:
                    raise
                self._changed.set()
                return max(EVERY_S, error.retry_after or 0.0)
            self._events[part - 1 :] = [event]
            self._shown[part - 1 :] = [text]
        return EVERY_S

    def _pages(self) -> list[str]:
        now = self._waiting or self._tools.words
        footer = "\n\n".join(filter(None, (self._stages, now and f"*{render.plain(now)}…*")))
        text = self._text.strip()
        if not (text or footer):
            return []
        pages = render.pages(text) if text else [""]
        pages[-1] = "\n\n".join(filter(None, (pages[-1], footer)))
        return pages


@dataclass(frozen=True, slots=True)
class LiveDraftMessage:
    id: str


@dataclass(slots=True)
class _Live(LiveMessage):
    draft: LiveDraft | None = None
    types: bool = False


class Presence(shared.Presence[_Live, LiveDraft]):
    def __init__(
        self, api: Api, posting: Posting, *, streaming: Streaming, typing: bool, reactions: bool
    ) -> None:
        super().__init__(_Live, MOST_JOBS)
        self._api, self._posting = api, posting
        self._streaming, self._types, self._reacts = streaming, typing, reactions
        self._typing: dict[str, anyio.Event] = {}

    def posted(self, thread: ThreadId, message_id: str) -> None:
        if live := self._messages.get((thread, message_id)):
            live.posted = True
            self._stop_typing(live)

    def _note(self, live: _Live, message_id: str, event: TurnEvent) -> None:
        match event:
            case Taken(again=False) if self._types and message_id.startswith("$"):
                self.soon(partial(self._read, live.thread, message_id))
            case TurnStarted():
                self._start_typing(live)
            case Waiting(seconds=math.inf):
                self._stop_typing(live)
            case Resumed():
                self._start_typing(live)
        begins = isinstance(event, TextDelta | ToolStarted | Waiting | StagesChanged) and live.thread.root
        if live.draft is None and begins and self._streaming != "off":
            live.draft = LiveDraft(live.thread, message_id, self._posting, self._streaming)
            self.soon(live.draft.run)
        if live.draft:
            live.draft.feed(event)

    def _settle(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        sign = SIGNS.get(end.outcome)
        if self._reacts and sign and message_id.startswith("$"):
            self.soon(partial(self._posting.react, room_of(thread), decoded(message_id), sign))

    def _forget(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        if live := self._messages.pop((thread, message_id), None):
            self._stop_typing(live)
            if live.draft:
                self.soon(partial(live.draft.close, end.outcome))

    async def _read(self, thread: ThreadId, message_id: str) -> None:
        try:
            await self._api.read(room_of(thread), decoded(message_id))
        except PostFailed as error:
            log.info("live.not_read: %s", error)

    def _start_typing(self, live: _Live) -> None:
        live.types, room = not live.posted, room_of(live.thread)
        if self._types and live.types and room not in self._typing and self.soon(partial(self._type, room)):
            self._typing[room] = anyio.Event()

    def _stop_typing(self, live: _Live) -> None:
        live.types, room = False, room_of(live.thread)
        others = any(one.types for one in self._messages.values() if room_of(one.thread) == room)
        if not others and (over := self._typing.get(room)):
            over.set()

    async def _type(self, room: str) -> None:
        """Show the sign in a room until nothing is written there any more."""
        over = self._typing[room]
        try:
            while not over.is_set():
                await self._api.typing(room, TYPING_S)
                with anyio.move_on_after(TYPES_AGAIN_S):
                    await over.wait()
            await self._api.typing(room, 0)
        except PostFailed as error:
            log.info("typing.failed: %s", error)
        finally:
            del self._typing[room]
