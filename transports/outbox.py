"""Posting through a transport: what to retry, what to look up first, and when to give up.

rate limited               -> wait as the platform says, try again
unavailable                -> try again; if it may be stored all the same, look for it first
rejected, or out of tries  -> give up: a stale reply is worse than none, there is no unsent queue
"""

from __future__ import annotations

import logging
from dataclasses import replace

import anyio

from threads.errors import PostFailed, TransportUnavailable
from threads.model import Outgoing, ThreadId, TurnEvent
from threads.wording import MAYBE_REPEAT

from .base import Transport

log = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0, 4.0)
"""Waits before the retries of one post."""

POST_WITHIN_S = 30.0
LONGEST_RETRY_AFTER_S = 120.0


class Outbox:
    """A `threads.delivery.Outlet` over one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def finds(self) -> bool:
        return self._transport.capabilities.find

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        self._transport.show(thread, message_id, event)

    async def find(self, thread: ThreadId, key: str) -> str | None:
        with anyio.move_on_after(POST_WITHIN_S):
            return await self._transport.find(thread, key)
        raise TransportUnavailable("look-up timed out")

    async def post(self, outgoing: Outgoing) -> str:
        """Post and return the platform's id; raises `PostFailed` when it is given up."""
        for pause in PAUSES_S:
            try:
                return await self._once(outgoing)
            except PostFailed as error:
                if not error.retryable or (error.retry_after or 0) > LONGEST_RETRY_AFTER_S:
                    raise
                log.warning("post failed, trying again: %s", error, extra={"thread_id": str(outgoing.thread)})
                await anyio.sleep(pause if error.retry_after is None else error.retry_after)
                if error.maybe_posted:
                    if not self.finds:
                        outgoing = _marked(outgoing)
                    elif (found := await self.find(outgoing.thread, outgoing.key)) is not None:
                        return found
        return await self._once(outgoing)

    async def _once(self, outgoing: Outgoing) -> str:
        try:
            with anyio.move_on_after(POST_WITHIN_S):
                return await self._transport.post(outgoing)
        except PostFailed:
            raise
        except (
            Exception
        ) as error:  # the boundary of a transport: its bugs are failed posts, never dead actors
            log.exception("transport failed to post", extra={"thread_id": str(outgoing.thread)})
            raise TransportUnavailable(f"{type(error).__name__}: {error}", maybe_posted=True) from error
        raise TransportUnavailable("post timed out", maybe_posted=True)


def _marked(outgoing: Outgoing) -> Outgoing:
    if outgoing.text.endswith(MAYBE_REPEAT):
        return outgoing
    return replace(outgoing, text=f"{outgoing.text}\n\n{MAYBE_REPEAT}")
