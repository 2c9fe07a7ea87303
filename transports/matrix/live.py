"""The signs that the bot is at work: read, typing, the live draft, and a reaction to what ended without an answer.

| event                  | what is shown                                                           |
|------------------------|-------------------------------------------------------------------------|
| `Taken`                | the message is read                                                     |
| `TurnStarted`          | typing                                                                  |
| text, tools, waits     | the draft: a message that is edited until the final text takes it over  |
| `Waiting` for a person | no typing, until `Resumed`                                              |
| `TurnSettled`          | no typing; the draft is closed unless it was handed over                |

A homeserver takes ten messages at once and then one in five seconds from a user (Synapse's default), and each edit
counts. A draft is edited at that pace, and the rest is left for answers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

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
from transports.matrix.api import Api, in_room
from transports.matrix.posting import Posting
from transports.matrix.settings import MatrixSettings
from transports.matrix.values import decoded, room_of
from transports.shared.live import presence as shared
from transports.shared.live.activity import RunningTools, waiting_words
from transports.shared.live.presence import LiveMessage

log = logging.getLogger(__name__)

EVERY_S, FIRST_AFTER_S = 5.0, 1.0
TYPING_S, TYPES_AGAIN_S = 30.0, 20.0
MOST_JOBS = 2_000
SIGNS: Mapping[Outcome, str] = {"merged": "➕", "stopped": "🛑", "undelivered": "⚠️"}  # noqa: RUF001 - the sign


class LiveDraft:
    """The draft of the answer to a message: its first page. `feed` takes events in, `run` shows them."""

    lost, messages = False, ()
    """A message of it is found by the key of its post, also one that was sent without an answer."""

    def __init__(self, thread: ThreadId, message_id: str, posting: Posting, *, shows_text: bool) -> None:
        self._thread, self._message_id, self._posting = thread, message_id, posting
        self._shows_text = shows_text
        self._key = message_key(thread, message_id)
        self._text, self._step, self._stages, self._waiting = "", 0, "", ""
        self._tools, self._changed, self._over = RunningTools(), anyio.Event(), anyio.Event()
        self._scope, self._shown, self._sent, self._begun = anyio.CancelScope(), "", False, False

    def feed(self, event: TurnEvent) -> None:
        """Take in what goes on in the turn. Never blocks; how much is kept is bounded."""
        match event:
            case TextDelta(text=text) if self._shows_text:
                self._text = (self._text + text)[: render.PAGE]
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
        self._changed.set()

    async def run(self) -> None:
        """Show the draft until it is over. A refusal ends it, and a rate limit is obeyed."""
        self._begun = True
        try:
            with self._scope:
                wait_s = FIRST_AFTER_S
                while True:
                    await anyio.sleep(wait_s)
                    await self._changed.wait()
                    self._changed = anyio.Event()
                    wait_s = await self._update()
        except PostFailed as error:
            log.info("live.muted: %s", error)
        finally:
            self._over.set()

    async def hand_over(self) -> tuple[()]:
        """End all calls: the final text is written over the draft."""
        self._scope.cancel()
        if self._begun:
            await self._over.wait()
        return ()

    async def close(self, outcome: Outcome) -> None:
        """End the draft without a final text. Text stays, with how the turn ended; anything else is deleted."""
        if self._scope.cancel_called:
            return
        await self.hand_over()
        if outcome == "withdrawn" or not self._text.strip():
            await self._posting.sweep(self._thread, self._key)
        elif self._sent:
            ending = "stopped" if outcome == "stopped" else "not finished"
            page = f"{render.pages(self._text)[0].strip()}\n\n*{ending}*"
            await self._posting.show(self._thread, self._message_id, self._key, page)

    async def _update(self) -> float:
        """Show what is new, and return how long to wait before the next edit."""
        now = self._waiting or self._tools.words
        text = self._text.strip() and render.pages(self._text)[0]
        page = "\n\n".join(filter(None, (text, self._stages, now and f"*{render.plain(now)}…*")))
        if page in ("", self._shown):
            return EVERY_S
        self._sent = True
        try:
            with anyio.CancelScope(shield=True):  # a message whose id is not known would be sent once more
                await self._posting.show(self._thread, self._message_id, self._key, page, final=False)
        except PostFailed as error:
            if not error.retryable:
                raise
            self._changed.set()
            return max(EVERY_S, error.retry_after or 0.0)
        self._shown = page
        return EVERY_S


class Presence(shared.Presence[LiveMessage, LiveDraft]):
    def __init__(self, api: Api, posting: Posting, settings: MatrixSettings) -> None:
        super().__init__(LiveMessage, MOST_JOBS)
        self._api, self._posting, self._settings = api, posting, settings
        self._typing: dict[tuple[ThreadId, str], anyio.Event] = {}

    def posted(self, thread: ThreadId, message_id: str) -> None:
        if live := self._messages.get((thread, message_id)):
            live.posted = True
            self._stop_typing(thread, message_id)

    def _note(self, live: LiveMessage, message_id: str, event: TurnEvent) -> None:
        key = live.thread, message_id
        match event:
            case Taken(again=False) if self._settings.typing and message_id.startswith("$"):
                path = in_room(room_of(live.thread), "receipt", "m.read", decoded(message_id))
                self.soon(partial(self._sign, "POST", path, {}))
            case TurnStarted() | Resumed() if self._settings.typing and not (
                live.posted or key in self._typing
            ):
                over = self._typing[key] = anyio.Event()
                self.soon(partial(self._keep_typing, room_of(live.thread), over))
            case Waiting(seconds=math.inf):
                self._stop_typing(live.thread, message_id)
        begins = isinstance(event, TextDelta | ToolStarted | Waiting | StagesChanged) and live.thread.root
        if live.draft is None and begins and self._settings.streaming != "off":
            shows_text = self._settings.streaming == "edits"
            live.draft = LiveDraft(live.thread, message_id, self._posting, shows_text=shows_text)
            self.soon(live.draft.run)
        if live.draft:
            live.draft.feed(event)

    def _settle(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        sign = SIGNS.get(end.outcome)
        if self._settings.reactions and sign and message_id.startswith("$"):
            self.soon(partial(self._posting.react, thread, decoded(message_id), sign))

    def _forget(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        self._stop_typing(thread, message_id)
        live = self._messages.pop((thread, message_id), None)
        if live and live.draft:
            self.soon(partial(live.draft.close, end.outcome))

    def _stop_typing(self, thread: ThreadId, message_id: str) -> None:
        if over := self._typing.pop((thread, message_id), None):
            over.set()

    async def _keep_typing(self, room: str, over: anyio.Event) -> None:
        path = in_room(room, "typing", self._api.me.id)
        while not over.is_set():
            await self._sign("PUT", path, {"typing": True, "timeout": int(TYPING_S * 1000)})
            with anyio.move_on_after(TYPES_AGAIN_S):
                await over.wait()
        await self._sign("PUT", path, {"typing": False})

    async def _sign(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        try:
            await self._api.call(method, path, body)
        except PostFailed as error:
            log.info("live.not_shown: %s", error)
