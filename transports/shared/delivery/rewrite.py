"""Writing over a message of ours: live answers become final, leftovers are deleted.

All of it can be repeated at will, so a lost answer costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from threads.errors import PostFailed, TransportUnavailable
from transports.shared.retry import retry

log = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0)
"""Waits before a call is repeated: a message that is not deleted would stand beside the answer for ever."""


async def take_over(write: Callable[[], Awaitable[bool]], delete: Callable[[], Awaitable[bool]]) -> bool:
    """Return what *write* returns: whether a live message became a page of the answer.

    Returns False if the platform cannot be reached for that, and the message is deleted. If it cannot be deleted
    either, raises `TransportUnavailable`.
    """
    try:
        return await retry(write, PAUSES_S[:1])
    except TransportUnavailable as error:
        # A write that was not answered may be done all the same: the message goes before another takes its place.
        log.warning("live.replaced: a message cannot be written over, and is deleted: %s", error)
        if not await delete():
            raise
        return False


async def remove(
    delete: Callable[[], Awaitable[object]], empty: Callable[[], Awaitable[object]] | None = None
) -> bool:
    """Delete a message, and return whether it is gone; if not, *empty* it. Never raises `PostFailed`."""
    try:
        await retry(delete, PAUSES_S)
    except PostFailed as error:
        log.warning("live.not_deleted: an unfinished message: %s", error)
    else:
        return True
    if empty:
        with suppress(PostFailed):
            await empty()
    return False
