"""A thread's conversation in memory, and its checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from threads import wording
from threads.errors import StoreUnavailable, error_fields, retry_fields
from threads.journal.records import PendingMessage
from threads.model import (
    Earlier,
    History,
    Incoming,
    Message,
    Resumed,
    TurnEvent,
    Waiting,
    places_of,
    put_again,
    read_upto,
)
from threads.ports import Context

log = logging.getLogger(__name__)

SAVE_PAUSES_S = (2.0, 4.0, 6.0)
"""Seconds between the tries of one checkpoint while the disk refuses."""


class Conversation:
    """The conversation as the model sees it. ``saved`` is False while the disk holds less than ``messages``.

    ``anew``: people archived an earlier conversation of the thread. ``before`` is what it last went back from.
    """

    def __init__(self, context: Context) -> None:
        self.messages = History()
        self.loaded, self.saved, self.anew = False, True, False
        self.before: list[Message] = []
        self._context = context

    @property
    def read_upto(self) -> str | None:
        """The id after which it may lack lines of its thread: blank if it has none, None if it is to get none."""
        after = read_upto(self.messages)
        return None if not after and (self.messages or self.anew) else after

    def without_known(self, earlier: Earlier, incoming: Incoming) -> Earlier:
        """Return the lines that neither it nor this message has; once it has begun, it has the bot's own."""
        lines = [line for line in earlier.lines if not (line.id and line.id == incoming.alias)]
        return replace(earlier, lines=tuple(line for line in lines if not (line.ours and self.messages)))

    async def load(self) -> int:
        """Read it, and return how many damaged lines were set aside. Raises `NewerSchema` or `StoreUnavailable`."""
        found = await self._context.load()
        self.messages.replace(found.messages)
        self.loaded, self.anew = True, found.anew
        return found.damaged

    def unload(self) -> None:
        """Drop it from memory: the next turn, which may wait with it already, reads it anew."""
        self.messages.replace([])
        self.loaded, self.saved, self.anew, self.before = False, True, False, []

    async def save(self) -> None:
        """Make it durable. Raises `StoreUnavailable`."""
        await self._context.save(self.messages)
        self.saved = True

    async def checkpoint(self, tell: Callable[[TurnEvent], Awaitable[None]]) -> bool:
        """Make it durable, with up to three retries. Returns False if the disk still refuses."""
        for tried, pause in enumerate((*SAVE_PAUSES_S, None), 1):
            try:
                await self.save()
            except StoreUnavailable as error:
                again = error_fields(error) if pause is None else retry_fields(error, tried + 1, pause)
                log.warning("context.not_saved: kept in memory: %s", error, extra=again)
                if pause is None:
                    break
                await tell(Waiting(wording.SAVING_FAILS, pause))
                await anyio.sleep(pause)
                await tell(Resumed())
            else:
                return True
        return False

    async def go_back(self, pending: PendingMessage) -> bool:
        """Go back to the message that this one replaces, if it replaces one, and put this one there.

        What followed goes to the archive. It is durable with the next checkpoint. Returns False if the conversation
        does not have that message. Raises `StoreUnavailable`.
        """
        incoming = pending.incoming
        if not incoming.replaces or places_of(self.messages, incoming.id):
            return True
        place, said = put_again(self.messages, incoming.replaces, incoming.id, incoming.text)
        if not said:
            return not pending.received.replaces  # what /retry repeats may have gone back
        await self.copy_to_archive(place)
        self.before = [*self.messages]
        self.messages.replace([*self.before[:place], *said])
        self.saved = False
        return True

    async def copy_to_archive(self, first: int = 0) -> None:
        """Copy it to the archive, from the message at *first* on. Raises `StoreUnavailable`."""
        if not self.saved:
            await self.save()  # the archive copies the file, not the memory
        await self._context.copy_to_archive(first)
        self.anew = True
