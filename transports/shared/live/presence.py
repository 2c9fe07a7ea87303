"""Signs of work for the messages that are not settled: which messages are live, and the draft of each."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from threads.model import ThreadId, TurnEvent, TurnSettled
from transports.shared.live.background_calls import BackgroundCalls

log = logging.getLogger(__name__)

MOST_LIVE = 1_000
"""Live messages that are remembered; beyond, the one that was silent for longest is dropped."""


FIRST_SIGN_S = 0.3
"""A sign waits so long: of a turn that is over by then there was nothing to see, and nothing is taken back."""


@dataclass(slots=True)
class LiveMessage:
    """A message that is not settled. ``posted``: its own post is out; ``draft`` is of the platform's class."""

    thread: ThreadId
    posted: bool = False
    draft: Any = None


L = TypeVar("L", bound=LiveMessage)
D = TypeVar("D")


class Presence(BackgroundCalls, ABC, Generic[L, D]):
    """The live messages of a transport. *new_message* makes the record of one; *most_jobs* may run or wait."""

    def __init__(self, new_message: Callable[[ThreadId], L], most_jobs: int) -> None:
        super().__init__(most_jobs)
        self._new_message = new_message
        self._messages: dict[tuple[ThreadId, str], L] = {}

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show an event of the turn of a message. Never blocks, never raises."""
        try:
            if isinstance(event, TurnSettled):
                self._settle(thread, message_id, event)
                self._forget(thread, message_id, event)
            else:
                self._note(self._message(thread, message_id), message_id, event)
        except Exception:  # the boundary of a transport: a sign that fails costs no turn
            fields = {"thread_id": str(thread), "message_id": message_id}
            log.exception("live.failed: not shown", extra=fields)

    def draft_of(self, thread: ThreadId, message_id: str) -> D | None:
        live = self._messages.get((thread, message_id))
        draft: D | None = live.draft if live else None
        return draft

    def live_in(self, thread: ThreadId) -> frozenset[str]:
        """Return the ids of the thread's live messages."""
        drafts = [live.draft for live in self._messages.values() if live.draft and live.thread == thread]
        return frozenset(message.id for draft in drafts for message in draft.messages)

    def is_alone(self, thread: ThreadId, message_id: str) -> bool:
        """Return whether no other message of the thread has a draft, which may begin another live message."""
        others = (live for (_, other), live in self._messages.items() if other != message_id)
        return not any(live.draft for live in others if live.thread == thread)

    @abstractmethod
    def posted(self, thread: ThreadId, message_id: str) -> None:
        """Note that the message has a post of its own."""

    @abstractmethod
    def _note(self, live: L, message_id: str, event: TurnEvent) -> None:
        """Show an event of a turn that goes on."""

    @abstractmethod
    def _settle(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        """Show how a turn ended."""

    @abstractmethod
    def _forget(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        """Drop the message, and take its signs away."""

    def _message(self, thread: ThreadId, message_id: str) -> L:
        key = thread, message_id
        live = self._messages[key] = self._messages.pop(key, None) or self._new_message(thread)
        if len(self._messages) > MOST_LIVE:
            self._forget(*next(iter(self._messages)), TurnSettled("failed"))
        return live
