"""Calls that are made again when they fail in a way that may pass."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import anyio

from threads.errors import PostFailed, retry_fields

T = TypeVar("T")

ASK_AGAIN_S = 10.0
"""The wait after a 429 without a usable Retry-After."""

OnRetry = Callable[[PostFailed, Mapping[str, object]], None]
"""Gets the error and the log fields of the retry to come."""


async def retry(
    call: Callable[[], Awaitable[T]], pauses: Sequence[float], on_retry: OnRetry = lambda *_: None
) -> T:
    """Return what *call* returns; a retryable `PostFailed` is followed by a pause and another call.

    The platform's ``retry_after`` goes before our pause, in seconds. Raises the `PostFailed` of the last call.
    """
    for tried, pause in enumerate(pauses, 1):
        try:
            return await call()
        except PostFailed as error:
            if not error.retryable:
                raise
            wait_s = error.retry_after or pause
            on_retry(error, retry_fields(error, tried + 1, wait_s))
            await anyio.sleep(wait_s)
    return await call()


def retry_seconds(retry_after: str) -> float:
    """Return the seconds of a Retry-After header, at least one."""
    try:
        seconds = float(retry_after)
    except ValueError:
        return ASK_AGAIN_S
    return max(seconds, 1.0) if math.isfinite(seconds) else ASK_AGAIN_S
