"""Calls that are made again when they fail in a way that may pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import anyio

from threads.errors import PostFailed, retry_fields

T = TypeVar("T")

OnRetry = Callable[[PostFailed, Mapping[str, str | float]], None]
"""Gets the error and the log fields of the retry to come."""


async def retry(
    call: Callable[[], Awaitable[T]],
    pauses: Sequence[float],
    on_retry: OnRetry = lambda *_: None,
    *,
    errors: type[PostFailed] = PostFailed,
) -> T:
    """Return what *call* returns; a retryable one of *errors* is followed by a pause and another call.

    The platform's ``retry_after`` goes before our pause, in seconds. Raises the `PostFailed` of the last call.
    """
    for tried, pause in enumerate(pauses, 1):
        try:
            return await call()
        except errors as error:
            if not error.retryable:
                raise
            wait_s = error.retry_after or pause
            on_retry(error, retry_fields(error.code, tried + 1, wait_s))
            await anyio.sleep(wait_s)
    return await call()
