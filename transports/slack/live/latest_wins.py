"""Calls that set a state, such as a status or a reaction: only the newest of each counts, and it may be late.

Each method has one `LatestCalls`, so that calls with the same key go out in order. A key that is requested again
keeps its place in the queue. New states go before repeated ones. A method that the workspace does not offer is called
once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.web_api import Web

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

Arguments = dict[str, JsonValue]

MOST_WAITING = 2_000
"""Calls that wait; beyond, the oldest is dropped."""

TRIES = 3

HERE_ONLY = ("method_not_supported_for_channel_type", "channel_type_not_supported", "access_denied")
"""Refusals that are not about the workspace."""


class LatestCalls(Generic[K]):
    """``on_done`` gets each key after its call was answered, whatever the answer is."""

    def __init__(self, web: Web, method: str, on_done: Callable[[K], None] = lambda _: None) -> None:
        self.offered = True
        self._web, self._method, self._on_done = web, method, on_done
        self._soon: OrderedDict[K, tuple[Arguments, int]] = OrderedDict()
        self._later: OrderedDict[K, tuple[Arguments, int]] = OrderedDict()
        self._requested = anyio.Event()
        self._in_flight: K | None = None

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return len(self._soon) + len(self._later)

    def busy(self, key: K) -> bool:
        """Return whether a call about it waits or is on its way."""
        return key in self._soon or key in self._later or self._in_flight == key

    def request(self, key: K, arguments: Arguments, *, soon: bool = True) -> None:
        if not self.offered:
            return
        if soon:
            self._later.pop(key, None)
        queue = self._soon if soon or key in self._soon else self._later
        queue[key] = (arguments, TRIES)
        if self.waiting > MOST_WAITING:
            (self._later or self._soon).popitem(last=False)
        self._requested.set()

    def cancel(self, key: K) -> None:
        """Drop a call that still waits."""
        self._soon.pop(key, None)
        self._later.pop(key, None)

    async def run(self) -> None:
        while self.offered:
            while not (self._soon or self._later):
                self._requested = anyio.Event()
                await self._requested.wait()
            await self._web.limits.take(self._method, urgent=False)
            if self._soon or self._later:  # it may have been taken back
                await self._ask(*(self._soon or self._later).popitem(last=False))

    async def _ask(self, key: K, wanted: tuple[Arguments, int]) -> None:
        arguments, tries = wanted
        self._in_flight = key
        try:
            await self._web.ask(self._method, **arguments)
        except SlackRefused as refused:
            self._refused(refused)
        except PostFailed as error:
            log.debug("live.call_failed: %s", error)
            if tries > 1 and not (key in self._soon or key in self._later):
                self._soon[key] = (arguments, tries - 1)
        finally:
            self._in_flight = None
        if not self.busy(key):
            self._on_done(key)

    def _refused(self, refused: SlackRefused) -> None:
        if refused.kind not in ("unsupported", "scope", "token") or refused.error in HERE_ONLY:
            log.debug("live.call_refused: %s", refused)
            return
        self.offered = False
        self._soon.clear()
        self._later.clear()
        log.warning("live.not_offered: the workspace does not offer it, and is not asked again: %s", refused)
