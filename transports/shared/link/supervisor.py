"""Keeping one link to a platform up: when to reconnect, and what to log.

| from                            | event                                     | to             |
|---------------------------------|-------------------------------------------|----------------|
| starting                        | connected                                 | connected      |
| any but stopped                 | another worker holds the session          | standby        |
| standby                         | connected                                 | connected      |
| starting, connected             | down, fewer than 5 times in a row         | reconnecting   |
| reconnecting                    | connected                                 | connected      |
| starting, connected, reconnecting | down for the 5th time in a row, or more | disconnected   |
| disconnected                    | connected                                 | connected      |
| disconnected                    | down                                      | disconnected   |
| any                             | `TransportFatal`, or cancelled            | stopped        |

The pause before the next try is 1, 2, 4 … 60 s, or longer if the platform says so. Only a link that stayed up for
`STEADY_S` resets the count. There is no jitter: a bot has one link per platform, so there is no herd to spread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from threads.errors import BotError, PostFailed, TransportFatal, TransportUnavailable, retry_fields
from transports.base.transport import LinkState

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
LONGEST_RETRY_AFTER_S = 300.0
"""The longest wait that a platform may ask for: it may be wrong."""
STEADY_S = 5.0
"""How long a link must stay up to reset the count of failures."""
DISCONNECTED_AFTER = 5

PROBE_EVERY_S = 5.0
"""How often a platform is asked for a sign of life after it could not be reached."""

Link = Callable[[Callable[[], None]], Awaitable[None]]
"""Connects, calls its argument at each connect, and returns or raises when the link is down."""


class LinkDown(TransportUnavailable):
    """The link to a platform ended or never came up; ``retry_after`` is the platform's word, in seconds."""


def pause(failures: int, retry_after: float | None = None) -> float:
    """Return how many seconds to wait after so many failures in a row (1 or more)."""
    backoff = min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE_S)
    return max(backoff, min(retry_after or 0.0, LONGEST_RETRY_AFTER_S))


class Supervisor:
    """Owns the link of the transport called *name* while `run` runs; one `run` at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._state: LinkState = "starting"
        self._up = anyio.Event()
        self._up_at: float | None = None
        self._heard_at = 0.0
        self._failures = 0

    @property
    def state(self) -> LinkState:
        return self._state

    @property
    def silent_s(self) -> float | None:
        """Return for how many seconds the link has given no sign of life; None while it is down."""
        return None if self._up_at is None else anyio.current_time() - self._heard_at

    def heard(self) -> None:
        """Note a sign of life from the link."""
        self._heard_at = anyio.current_time()

    def stand_by(self) -> None:
        """Note that another worker holds the session."""
        self._leave("standby")
        self._up.set()

    async def reconnected(self) -> None:
        """Return when connected or standing by; never, if the link has stopped for good."""
        await self._up.wait()

    async def run(self, link: Link) -> None:
        """Keep the link up until cancelled. Raises `TransportFatal` when only a person can fix it."""
        try:
            while True:
                retry_after = self._down(await self._once(link))
                await anyio.sleep(pause(self._failures, retry_after))
        finally:
            self._leave("stopped")

    async def _once(self, link: Link) -> Exception | None:
        """Run the link to its end and return why it ended, if it says so."""
        try:
            await link(self._connected)
        except TransportFatal as error:
            log.error("transport.refused: %s: stopped for good: %s", self._name, error)  # noqa: TRY400  a fact, not a traceback
            raise
        except PostFailed as error:
            return error
        except Exception as error:  # the boundary of a transport: a bug costs a reconnect, not the bot
            log.exception("transport.broke: %s: the link failed", self._name)
            return error
        return None

    def _connected(self) -> None:
        if self._up_at is None:
            log.info("transport.connected: %s", self._name, extra={"failures": self._failures})
            self._up_at = anyio.current_time()
        self._state = "connected"
        self.heard()
        self._up.set()

    def _down(self, why: Exception | None) -> float | None:
        """Count and log the failure; return the wait that the platform asked for, if any."""
        steady = self._up_at is not None and anyio.current_time() - self._up_at >= STEADY_S
        self._failures = 1 if steady else self._failures + 1
        self._leave("disconnected" if self._failures >= DISCONNECTED_AFTER else "reconnecting")
        retry_after = why.retry_after if isinstance(why, PostFailed) else None
        error = why if isinstance(why, BotError) else TransportUnavailable(str(why or ""))
        wait = pause(self._failures, retry_after)
        log.log(
            logging.ERROR if self._failures == DISCONNECTED_AFTER else logging.WARNING,
            "transport.down: %s: %s (%s); failure %d in a row, trying again in %.0f s",
            self._name,
            self._state,
            f"{type(why).__name__}: {why}" if why else "the link ended",
            self._failures,
            wait,
            extra=retry_fields(error, self._failures + 1, wait, transport=self._name),
        )
        return retry_after

    def _leave(self, state: LinkState) -> None:
        self._state, self._up_at = state, None
        if self._up.is_set():
            self._up = anyio.Event()


class Reachability:
    """Whether a platform can be reached, as its posts find out. One probe serves everything that waits."""

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
                    continue
                except PostFailed:
                    pass  # it answered
                self._lost = False
