"""The state of the running bot, and the heartbeat that feeds systemd's watchdog once a second.

The watchdog is not fed when a restart would help:

| state                                                | would a restart help?                    | fed         |
|------------------------------------------------------|------------------------------------------|-------------|
| the event loop hangs                                 | yes: our code hangs                      | no: no beat |
| the worker threads hang, but the disk does not       | yes: our code blocks them                | no          |
| the worker threads and the disk hang                 | no: the next process would hang too      | yes         |
| a link says "connected" but is silent for 300 s      | yes: its own timeout (Slack 20 s,        | no          |
|                                                      | Discord 120 s) failed                    |             |
| links are down                                       | no: this process reconnects              | yes         |
| turns fail, a circuit is open, a limit is reached    | no: people are told                      | yes         |
| memory or files grow                                 | systemd has its own limits               | yes         |

Silence is the age of the last frame; the page and the terminal have none. It grows with the beats, so a suspended
machine does not count. Until the bot is ready (interrupted work is taken up and a transport is connected), the same
beats ask systemd for more time.
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

from bot.observe.live_parts import LiveParts, TransportLink
from bot.observe.loop_lag import LoopLag
from bot.observe.systemd_notify import Notify
from bot.observe.worker_threads import WorkerWatch
from bot.ports.status import UP, Status, TransportStatus

log = logging.getLogger(__name__)

BEAT_S = 1.0
EARLY_S = 0.2
"""Seconds between beats until the bot is ready."""
SILENT_LINK_S = 300.0
EXTEND_S = 60.0
STATUS_EVERY = 5
"""Beats between two updates of the status line."""
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Silence:
    """The age of a link's last frame, as far as this process was awake meanwhile; 0 for what has no frames."""

    lasted_s: float = 0.0

    def beat(self, silent_s: float | None, seconds: float) -> None:
        self.lasted_s = 0.0 if silent_s is None else min(silent_s, self.lasted_s + seconds)


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """The version and the start of this process: ``at`` in UTC, ISO 8601, ``clock`` by `time.monotonic`."""

    version: str
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    clock: float = field(default_factory=time.monotonic)


class Watchdog:
    """The heartbeat. Read `status` and `fault` only on the event loop's thread; they never wait."""

    def __init__(
        self,
        live: LiveParts,
        lag: LoopLag,
        workers: WorkerWatch,
        notify: Notify,
        *,
        stopping: Callable[[], bool],
    ) -> None:
        self._live, self._lag, self._workers = live, lag, workers
        self._notify, self._stopping = notify, stopping
        self._start = ProcessStart(version("threadfast"))
        self._silences = [(edge, Silence()) for edge in live.edges]
        self._status_line, self._fault = "", ""
        self.announced = anyio.Event()
        """Set when the bot was first ready."""

    async def run(self) -> None:
        beats = 0
        while True:
            self._beat()
            if beats % STATUS_EVERY == 0:
                self._update_status_line()
            beats += 1
            await anyio.sleep(self._pause_s)

    @property
    def _pause_s(self) -> float:
        return (
            min(BEAT_S, (self._notify.watchdog_s or BEAT_S * 3) / 3) if self.announced.is_set() else EARLY_S
        )

    @property
    def ready(self) -> bool:
        return not self.unready

    @property
    def unready(self) -> str:
        """Return why the bot is not ready, for people; blank if it is ready."""
        if self._stopping():
            return "it is stopping"
        if trouble := self._live.store_trouble():
            return trouble
        if any(edge.state in UP for edge in self._live.edges):
            return ""
        down = ", ".join(f"{edge.name} is {edge.state}" for edge in self._live.edges)
        return f"no transport is connected: {down}"

    @property
    def fault(self) -> str:
        """Return why the process should be restarted, for people; blank if it should not."""
        if self._workers.state == "stuck":
            return "the worker threads do not respond, but the disk does"
        silent = [edge.name for edge, silence in self._silences if silence.lasted_s > SILENT_LINK_S]
        return f"connected, but silent for {SILENT_LINK_S:.0f} s: {', '.join(silent)}" if silent else ""

    def status(self) -> Status:
        live, pending = self._live, self._live.journal.ledger.pending
        oldest = next(iter(pending.values())).received.at if pending else ""
        return Status(
            pid=os.getpid(),
            version=self._start.version,
            started_at=self._start.at,
            uptime_s=round(time.monotonic() - self._start.clock, 1),
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
            facts=dict(live.facts),
            troubles=self._troubles(),
            servers=tuple(live.servers()),
        )

    def _troubles(self) -> tuple[str, ...]:
        hangs = ["the disk does not respond"] if self._workers.state == "waiting" else []
        return (*filter(None, [self.fault]), *hangs, *self._live.troubles())

    def _beat(self) -> None:
        for edge, silence in self._silences:
            silence.beat(edge.silent_s if edge.state == "connected" else None, self._pause_s)
        if (fault := self.fault) != self._fault:
            self._fault = fault
            if fault:
                log.error("vitals.ailing: %s", fault)
            else:
                log.info("vitals.well")
        if fault:
            return
        if self.ready and not self.announced.is_set() and self._notify.ready():
            self.announced.set()
            log.info("process.ready")
        if self.announced.is_set():
            self._notify.alive()
        elif not self._stopping():
            self._notify.starting(EXTEND_S)

    def _update_status_line(self) -> None:
        live = self._live
        line = status_line(live.edges, live.slots.running, live.registry.waiting, self._troubles())
        if line != self._status_line:
            self._status_line = line
            self._notify.status(line)


def status_line(edges: Sequence[TransportLink], running: int, waiting: int, troubles: Sequence[str]) -> str:
    """Return the state in one line, for ``systemctl status``."""
    links = ", ".join(f"{edge.name} {edge.state}" for edge in edges)
    turns = f"{running} {'turn runs' if running == 1 else 'turns run'}, {waiting} messages wait"
    return "; ".join([links, turns, *troubles])


def _transport(edge: TransportLink) -> TransportStatus:
    silent_s = edge.silent_s
    return TransportStatus(
        edge.name, edge.state, edge.trouble, None if silent_s is None else round(silent_s, 1)
    )


def _since(at: str) -> float:
    return round(max(0.0, (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()), 1) if at else 0.0


def _resident() -> int:
    """Return the resident memory in bytes; 0 without /proc."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text("ascii").split()[1]) * PAGE if statm.exists() else 0


def _open_files() -> int:
    """Return the number of open file descriptors; 0 without /proc."""
    fds = Path("/proc/self/fd")
    return sum(1 for _ in fds.iterdir()) - 1 if fds.is_dir() else 0
