"""Posting through a transport: what to retry, what to look up first, and when to give up.

rate limited               -> wait as the platform says, try again
unavailable                -> try again; if it may be stored all the same, look for it first
rejected, or out of tries  -> give up: a stale reply is worse than none, there is no unsent queue
a reply gets too old       -> give up likewise, before any part of it is out

A try that posted further parts of a long post resets the count.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import anyio

from threads.errors import (
    Fenced,
    PostFailed,
    TransportRejected,
    TransportUnavailable,
    error_fields,
    retry_fields,
)
from threads.model import Attachment, Earlier, Outgoing, ThreadId, TurnEvent
from threads.wording import MAYBE_REPEAT
from transports.base.transport import Transport

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSES_S = (1.0, 2.0, 4.0)
"""Waits before the retries of one post."""

POST_WITHIN_S = 600.0
"""A last resort: a transport bounds its own calls, but an answer in many parts waits for its turn at each."""

LOOK_PAUSES_S = (1.0, 3.0)
"""Waits before a failed look-up is repeated: without a look-up a repeat has to be marked as one."""

RECONNECT_WITHIN_S = 600.0
"""A post that met a dead link waits this long for the link to come back before it is tried again."""

LONGEST_RETRY_AFTER_S = 120.0


class Outbox:
    """A `threads.delivery.Outlet` over one transport.

    *ensure_ownership* is awaited before each try of a post; see `threads.ports.Store`. A reply that is not out
    within *max_age_s* is given up.
    """

    def __init__(
        self,
        transport: Transport,
        ensure_ownership: Callable[[], Awaitable[None]],
        max_age_s: float = math.inf,
    ) -> None:
        self._transport, self._ensure_ownership, self._max_age_s = transport, ensure_ownership, max_age_s
        able = transport.capabilities
        self.finds, self.lands_late, self.asks = able.find, able.lands_late, able.asks

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        self._transport.show(thread, message_id, event)

    async def find(self, thread: ThreadId, key: str) -> str | None:
        return await self._bounded(self._transport.find(thread, key), thread)

    async def ensure_open(self, thread: ThreadId, message_id: str) -> None:
        """See `Transport.ensure_open`."""
        if self._transport.capabilities.closes:
            await self._bounded(self._transport.ensure_open(thread, message_id), thread)

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        if not self._transport.capabilities.earlier:
            return Earlier()
        return await self._bounded(self._transport.earlier(thread, before, after), thread)

    def download(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._transport.download(attachment)

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        if not self._transport.capabilities.files:
            raise TransportRejected(f"{self._transport.name} takes no files")
        await self._bounded(self._transport.attach(thread, key, file, name), thread)

    async def post(self, outgoing: Outgoing) -> str:
        """Post and return the platform's id; raises `PostFailed` when it is given up, and `Fenced`."""
        failures, until = 0, self._expires_at(outgoing)
        while True:
            await self._ensure_ownership()
            try:
                if anyio.current_time() >= until and not outgoing.text.endswith(MAYBE_REPEAT):
                    raise TransportUnavailable("the store was away for too long")
                return await self._bounded(self._transport.post(outgoing), outgoing.thread)
            except PostFailed as error:
                failures, until = (1, math.inf) if error.progressed else (failures + 1, until)
                last = not await self._waited(outgoing, error, failures, until)
                if error.maybe_posted:
                    found, outgoing = await self._look(outgoing, error, until)
                    if found is not None:
                        return found
                if last:
                    raise

    def _expires_at(self, outgoing: Outgoing) -> float:
        left = 0.0 if outgoing.expired else self._max_age_s
        return anyio.current_time() + (left if outgoing.kind == "reply" else math.inf)

    async def _waited(self, outgoing: Outgoing, error: PostFailed, failures: int, until: float) -> bool:
        """Wait until the post may be tried again; return False, at once, if that is of no use.

        Return False as well when the time is *until*, on the event loop's clock, unless the post may be out. One that
        may be out since an earlier try may be out after this one.
        """
        error.maybe_posted |= outgoing.text.endswith(MAYBE_REPEAT)
        if failures > len(PAUSES_S) or _hopeless(error):
            log.warning("post.failed: given up: %s", error, extra=_ids(outgoing))
            return False
        pause = error.retry_after or PAUSES_S[failures - 1]
        fields = {**_ids(outgoing), **retry_fields(error, failures + 1, pause)}
        log.warning("post.failed: %s", error, extra=fields)
        until = math.inf if error.maybe_posted else until
        with anyio.CancelScope(deadline=until):
            await anyio.sleep(pause)
            with anyio.move_on_after(RECONNECT_WITHIN_S):
                await self._transport.reconnected()
        return anyio.current_time() < until

    async def _look(self, outgoing: Outgoing, error: PostFailed, until: float) -> tuple[str | None, Outgoing]:
        """Return the id of a post that is out after all, and the post, marked as a repeat if that is unknown.

        Raise *error* if it is not out and the time is *until*.
        """
        text = outgoing.text.removesuffix(f"\n\n{MAYBE_REPEAT}")
        for tried, pause in enumerate((*LOOK_PAUSES_S, None) if self.finds else (), 1):
            try:
                found = await self.find(outgoing.thread, outgoing.key)
            except PostFailed as fault:
                last = pause is None or _hopeless(fault)
                wait = fault.retry_after or pause or 0.0
                again = error_fields(fault) if last else retry_fields(fault, tried + 1, wait)
                log.warning("post.lookup_failed: %s", fault, extra={**_ids(outgoing), **again})
                if last:
                    break
                await anyio.sleep(wait)
            else:
                error.maybe_posted = False
                if found is None and anyio.current_time() >= until:
                    raise error
                return found, replace(outgoing, text=text)
        return None, replace(outgoing, text=f"{text}\n\n{MAYBE_REPEAT}")

    async def _bounded(self, work: Awaitable[T], thread: ThreadId) -> T:
        """Wait for the transport, but not for ever. Raises only `PostFailed` and `Fenced`."""
        try:
            with anyio.move_on_after(POST_WITHIN_S):
                return await work
        except (PostFailed, Fenced):
            raise
        except Exception as error:  # the boundary of a transport: its bugs never kill an actor
            log.exception("post.broke: see the traceback", extra={"thread_id": str(thread)})
            raise TransportUnavailable(f"{type(error).__name__}: {error}", maybe_posted=True) from error
        raise TransportUnavailable("the transport took too long", maybe_posted=True)


def _ids(post: Outgoing) -> dict[str, str]:
    return {"thread_id": str(post.thread), "message_id": post.reply_to, "correlation_id": post.correlation_id}


def _hopeless(error: PostFailed) -> bool:
    return not error.retryable or (error.retry_after or 0) > LONGEST_RETRY_AFTER_S
