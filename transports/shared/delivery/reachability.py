"""Whether a platform can be reached, as its posts find out. One probe serves everything that waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from threads.errors import PostFailed, TransportUnavailable

PROBE_EVERY_S = 5.0
"""How often a platform is asked for a sign of life after it could not be reached."""


class Reachability:
    def __init__(self) -> None:
        self._lost = False
        self._probing = anyio.Lock()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note when the block cannot reach the platform."""
        try:
            yield
        except TransportUnavailable:
            self._lost = True
            raise

    def found(self) -> None:
        """Note that the platform answered."""
        self._lost = False

    async def regained(self, probe: Callable[[], Awaitable[object]]) -> None:
        """Return when the platform answers *probe*, even with an error; at once if it was not lost."""
        async with self._probing:
            while self._lost:
                try:
                    await probe()
                except TransportUnavailable:
                    await anyio.sleep(PROBE_EVERY_S)
                except PostFailed:
                    self._lost = False
                else:
                    self._lost = False
