"""Calls that set a state, such as a status or a reaction: only the newest of each counts, and it may be late.

Each method has one `LatestCalls`, so that calls with the same key go out in order. A key that is requested again
keeps its place in the queue. New states go before repeated ones. What the workspace or a channel does not offer is
asked for once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import anyio
from cachetools import FIFOCache
from pydantic import JsonValue

from threads.errors import PostFailed
from transports.shared.live.presence import FIRST_SIGN_S
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.web_api import WebApi

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

Arguments = dict[str, JsonValue]

MOST_WAITING = 2_000
"""Calls that wait; beyond, the oldest is dropped."""

MOST_LATE = 20
"""Waiting calls from which on a new one would be late: Slack's limits are 20 to 60 calls a minute."""

TRIES = 3

HERE_ONLY = (
    *("method_not_supported_for_channel_type", "channel_type_not_supported", "access_denied"),
    *("missing_recipient_user_id", "missing_recipient_team_id"),
)
"""Refusals that are not about the workspace."""

MOST_REFUSING = 1_000
"""Channels that refused, and are not asked again."""


class MethodAvailability:
    """Whether Slack offers a method: not in the whole workspace, or not in a channel, once it was refused there."""

    def __init__(self) -> None:
        self.anywhere = True
        self._refusing: FIFOCache[JsonValue, None] = FIFOCache(MOST_REFUSING)

    def in_channel(self, channel: JsonValue) -> bool:
        return self.anywhere and channel not in self._refusing

    def refused(self, refused: SlackRefused, channel: JsonValue) -> bool:
        """Note a refusal; return whether it says that the method is not offered."""
        if refused.error in HERE_ONLY:
            self._refusing[channel] = None
        elif refused.kind in ("unsupported", "scope", "token"):
            self.anywhere = False
        else:
            log.debug("live.call_refused: %s", refused)
            return False
        where = "channel" if self.anywhere else "workspace"
        log.warning("live.not_offered: the %s does not offer it, and is not asked again: %s", where, refused)
        return True


class LatestCalls(Generic[K]):
    """``on_done`` gets each key after its call was answered, whatever the answer is.

    ``on_refused`` is called when the workspace or a channel turns out not to offer the method.
    """

    def __init__(
        self,
        web: WebApi,
        method: str,
        *,
        on_done: Callable[[K], None] = lambda _: None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._web, self._method = web, method
        self._on_done, self._on_refused = on_done, on_refused
        self._offer = MethodAvailability()
        self._soon: OrderedDict[K, tuple[Arguments, int]] = OrderedDict()
        self._later: OrderedDict[K, tuple[Arguments, int]] = OrderedDict()
        self._requested = anyio.Event()
        self._in_flight: K | None = None

    @property
    def late(self) -> bool:
        """Whether a call that is requested now would be late."""
        return len(self._soon) + len(self._later) >= MOST_LATE

    def offered_in(self, channel: str) -> bool:
        return self._offer.in_channel(channel)

    def busy(self, key: K) -> bool:
        """Return whether a call about it waits or is on its way."""
        return key in self._soon or key in self._later or self._in_flight == key

    def request(self, key: K, arguments: Arguments, *, soon: bool = True) -> None:
        if not self._offer.in_channel(_channel_of(arguments)):
            return
        if soon:
            self._later.pop(key, None)
        queue = self._soon if soon or key in self._soon else self._later
        queue[key] = (arguments, TRIES)
        if len(self._soon) + len(self._later) > MOST_WAITING:
            (self._later or self._soon).popitem(last=False)
        self._requested.set()

    def cancel(self, key: K) -> bool:
        """Drop a call that still waits. Return whether one is on its way, which cannot be taken back."""
        self._soon.pop(key, None)
        self._later.pop(key, None)
        return self._in_flight == key

    async def run(self) -> None:
        while self._offer.anywhere:
            while not (self._soon or self._later):
                self._requested = anyio.Event()
                await self._requested.wait()
                await anyio.sleep(FIRST_SIGN_S)
            await self._web.limits.take(self._method, urgent=False)
            if self._soon or self._later:  # it may have been taken back
                await self._ask(*(self._soon or self._later).popitem(last=False))

    async def _ask(self, key: K, wanted: tuple[Arguments, int]) -> None:
        arguments, tries = wanted
        self._in_flight = key
        try:
            await self._web.ask(self._method, **arguments)
        except SlackRefused as refused:
            self._refused(refused, _channel_of(arguments))
        except PostFailed as error:
            log.debug("live.call_failed: %s", error)
            if tries > 1 and not (key in self._soon or key in self._later):
                self._soon[key] = (arguments, tries - 1)
        finally:
            self._in_flight = None
        if not self.busy(key):
            self._on_done(key)

    def _refused(self, refused: SlackRefused, channel: JsonValue) -> None:
        if self._offer.refused(refused, channel):
            if not self._offer.anywhere:
                self._soon.clear()
                self._later.clear()
            self._on_refused()


def _channel_of(arguments: Arguments) -> JsonValue:
    return arguments.get("channel_id") or arguments.get("channel")
