"""How the running bot is: one beat a second, which is also what keeps systemd's watchdog from ending the process.

The watchdog is fed only while a new process would do no better than this one:

| what is seen                                            | would a restart help?                   | fed |
|---------------------------------------------------------|------------------------------------------|-----|
| the event loop does not turn                            | yes: it is our code that hangs           | no: no beat |
| the worker threads do not answer, but the disk does     | yes: they are stuck over something of ours | no  |
| neither the threads nor the disk answer                 | no: the next process would hang as well  | yes |
| a link says "connected", and its own watch, which takes | yes: the watch is dead, nobody will ever | no  |
| 20 s (Slack) or 120 s (Discord), saw nothing for 300    | connect again                            |     |
| a link is down, or all are                              | no: it is tried again from here          | yes |
| turns fail, a circuit is open, a limit is reached       | no: people are told                      | yes |
| memory or files grow                                    | systemd's own limits judge that          | yes |

Silence is counted in beats: when the machine slept or the process was stopped, nothing could be heard. Until the bot
is ready (what the last process left is taken up, a transport is connected) the same beats ask systemd for more time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import anyio

from bot.observe.live_parts import Edge, Live
from bot.observe.loop_lag import LoopLag
from bot.observe.systemd_notify import Notify
from bot.observe.worker_threads import Workers
from bot.ports.status import Status, TransportStatus

log = logging.getLogger(__name__)

BEAT_S = 1.0
EARLY_S = 0.2
"""Between two beats until we are ready: whoever waits for that is waited for by people."""
DEAF_S = 300.0
EXTEND_S = 60.0
TOLD_EVERY = 5
"""Beats between two looks at what the status line should say."""
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Silence:
    """For how long a connected link has given no sign, in seconds of beats."""

    lasted_s: float = 0.0
    _last: float | None = None

    def beat(self, silent_s: float | None, seconds: float) -> None:
        heard = silent_s is None or self._last is None or silent_s < self._last
        self.lasted_s = 0.0 if heard else self.lasted_s + seconds
        self._last = silent_s


@dataclass(frozen=True, slots=True)
class Born:
    """When and as what this process began. ``at`` is UTC, ISO 8601; ``clock`` is in seconds of `time.monotonic`."""

    version: str
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    clock: float = field(default_factory=time.monotonic)


class Vitals:
    """The beat. `status` and `ailment` answer at once, and only on the loop's own thread."""

    def __init__(
        self, live: Live, lag: LoopLag, workers: Workers, notify: Notify, *, stopping: Callable[[], bool]
    ) -> None:
        self._live, self._lag, self._workers = live, lag, workers
        self._notify, self._stopping = notify, stopping
        self._born = Born(version("threadfast"))
        self._silences = [(edge, Silence()) for edge in live.edges]
        self._announced, self._said, self._ailing = False, "", ""

    async def run(self) -> None:
        beats = 0
        while True:
            self._beat()
            if beats % TOLD_EVERY == 0:
                self._tell()
            beats += 1
            await anyio.sleep(self._pause_s)

    @property
    def _pause_s(self) -> float:
        return min(BEAT_S, (self._notify.watchdog_s or BEAT_S * 3) / 3) if self._announced else EARLY_S

    @property
    def ready(self) -> bool:
        return not self.unready

    @property
    def unready(self) -> str:
        """Return why the bot is not ready, for people; blank when it is."""
        if self._stopping():
            return "it is stopping"
        if any(edge.state == "connected" for edge in self._live.edges):
            return ""
        down = ", ".join(f"{edge.name} is {edge.state}" for edge in self._live.edges)
        return f"no transport is connected: {down}"

    @property
    def ailment(self) -> str:
        """Return why this process had better be replaced, for people; blank when it had not."""
        if self._workers.state == "stuck":
            return "the worker threads do not answer, though the disk does"
        deaf = [edge.name for edge, silence in self._silences if silence.lasted_s > DEAF_S]
        return f"connected, but deaf for {DEAF_S:.0f} s: {', '.join(deaf)}" if deaf else ""

    def status(self) -> Status:
        live, pending = self._live, self._live.journal.ledger.pending
        oldest = next(iter(pending.values())).received.at if pending else ""
        return Status(
            pid=os.getpid(),
            version=self._born.version,
            started_at=self._born.at,
            uptime_s=round(time.monotonic() - self._born.clock, 1),
            ready=self.ready,
            stopping=self._stopping(),
            data=str(live.data),
            model=live.model,
            transports=tuple(_transport(edge) for edge in live.edges),
            circuits=tuple(live.circuits()),
            spend=tuple(live.spend()),
            threads=len(live.registry),
            running=live.slots.running,
            queued=live.slots.queued,
            waiting=live.registry.waiting,
            pending=len(pending),
            oldest_pending_s=_since(oldest),
            lag_s=round(self._lag.now_s, 4),
            worst_lag_s=round(self._lag.worst_s(), 4),
            rss_bytes=_resident(),
            open_files=_open_files(),
            sandbox=live.sandbox,
            troubles=self._troubles(),
        )

    def _troubles(self) -> tuple[str, ...]:
        hangs = ["the disk does not answer"] if self._workers.state == "waiting" else []
        return (*filter(None, [self.ailment]), *hangs, *self._live.troubles())

    def _beat(self) -> None:
        for edge, silence in self._silences:
            silence.beat(edge.silent_s if edge.state == "connected" else None, self._pause_s)
        if (ailment := self.ailment) != self._ailing:
            self._ailing = ailment
            if ailment:
                log.error("vitals.ailing: %s", ailment)
            else:
                log.info("vitals.well")
        if ailment:
            return
        if self.ready and not self._announced and self._notify.ready():
            self._announced = True
            log.info("process.ready")
        if self._announced:
            self._notify.alive()
        elif not self._stopping():
            self._notify.starting(EXTEND_S)

    def _tell(self) -> None:
        said = line(self._live.edges, self._live.slots.running, self._live.registry.waiting, self._troubles())
        if said != self._said:
            self._said = said
            self._notify.status(said)


def line(edges: Sequence[Edge], running: int, waiting: int, troubles: Sequence[str]) -> str:
    """Return it all in one line for people."""
    links = ", ".join(f"{edge.name} {edge.state}" for edge in edges)
    turns = f"{running} {'turn runs' if running == 1 else 'turns run'}, {waiting} messages wait"
    return "; ".join([links, turns, *troubles])


def _transport(edge: Edge) -> TransportStatus:
    silent_s = edge.silent_s
    return TransportStatus(
        edge.name, edge.state, edge.trouble, None if silent_s is None else round(silent_s, 1)
    )


def _since(at: str) -> float:
    return round(max(0.0, (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()), 1) if at else 0.0


def _resident() -> int:
    """Return the memory that is held, in bytes; 0 where the system has no /proc."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text("ascii").split()[1]) * PAGE if statm.exists() else 0


def _open_files() -> int:
    """Return how many file descriptors are open; 0 where the system has no /proc."""
    fds = Path("/proc/self/fd")
    return sum(1 for _ in fds.iterdir()) - 1 if fds.is_dir() else 0
