"""Waiting for a fake to change, without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tests.patience import WITHIN_S

T = TypeVar("T")


class Waiting:
    """A fake that calls `changed` after each change."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def changed(self) -> None:
        """Wake whoever waits in `until`."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, predicate: Callable[[], T], limit: float = WITHIN_S) -> T:
        """Wait, at most *limit* seconds, until *predicate* is true, and return its value."""
        async with asyncio.timeout(limit):
            while not (found := predicate()):
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                await waiter
        return found
