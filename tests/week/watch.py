"""What is seen of the running bot from outside: its log, what it tells systemd, its health, and what it holds."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import anyio

from tests.week.clock import Clock
from tests.week.faults import FAULTS, GRACE_S, USUAL
from tests.week.people import DAY_S

LOOK_S, ASK_S = 5.0, 600.0
NEXT_CALL = "tried again with the next call"
"""Of a circuit that delays nothing any more, and that nobody has called through yet."""
OURS = re.compile(r"(bot|threads|transports)\.")
SPARE = {"tasks": (2, 0), "descriptors": (4, 0), "MB": (30, 12)}
"""What may be there beyond the first rest, and more for each later one. The fakes, in this process too, keep all calls."""
OBJECTS = 0, 60
"""The same for each class of the bot: what it keeps of its messages."""


@dataclass
class Watch:
    """What is seen of the bot from outside, as faults in words."""

    clock: Clock
    folder: Path
    names: Sequence[str]
    faults: list[str] = field(default_factory=list)
    nights: list[Counter[str]] = field(default_factory=list)
    log: Counter[str] = field(default_factory=Counter)
    up = False

    def found(self, what: str) -> None:
        self.faults.append(f"{self.at}: {what}")

    @property
    def at(self) -> str:
        return f"{datetime.fromtimestamp(self.clock.wall(), UTC):%d %b %H:%M:%S}"

    @property
    def troubled(self) -> bool:
        return any(fault.now(self.clock.wall(), GRACE_S) for fault in FAULTS)

    # the log, as standard error

    encoding = "utf-8"

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 2

    def flush(self) -> None:
        pass

    def write(self, text: str) -> None:
        for line in text.splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                if line and not line.startswith(("Model: ", "Data: ")):
                    self.found(f"on standard error: {line[:300]}")
                continue
            self.log[told["event"]] += 1
            if "code" in told:
                self.log[f"{told['event']} {told['code']}"] += 1
            if told["level"] not in ("debug", "info"):
                caused = (fault for fault in FAULTS if fault.now(self.clock.wall(), GRACE_S))
                if told["event"] not in USUAL and not any(
                    told["event"].startswith(tell) for fault in caused for tell in fault.tells
                ):
                    self.found(f"log: {line[:600]}")

    # systemd, and whoever asks for its health

    async def supervise(self) -> None:
        """Read what the bot tells systemd."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as unit:
            unit.bind(str(self.folder / "notify"))
            while True:
                await anyio.sleep(LOOK_S)
                was_up, told = self.up, list(_datagrams(unit))
                self.up = (self.up or "READY=1" in told) and not any("STOPPING=1" in one for one in told)
                if was_up and self.up and "WATCHDOG=1" not in told:
                    self.found("no beat for systemd's watchdog")
                for line in told:
                    if "silent" in line:
                        self.found(f"systemd is told {line}")

    async def ask(self) -> None:
        while True:
            await anyio.sleep(ASK_S)
            if self.up:
                health, status = await self._get("/healthz"), await self._get("/status")
                if not self.up:
                    continue
                if " 200 " not in health.partition("\r\n")[0]:
                    self.found(f"healthz: {health}")
                for edge in json.loads(status.partition("\r\n\r\n")[2])["transports"]:
                    linked = edge["name"] in ("slack", "discord")
                    if (edge["silent_s"] is not None) > linked or (edge["silent_s"] or 0) > 90:
                        self.found(f"status: {edge}")
                told = json.loads(status.partition("\r\n\r\n")[2])["troubles"]
                if found := [one for one in told if not (self.troubled or one.endswith(NEXT_CALL))]:
                    self.found(f"troubles: {found}")

    async def _get(self, path: str) -> str:
        async with await anyio.connect_unix(str(self.folder / "data" / "status.sock")) as stream:
            await stream.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            text = b""
            with anyio.fail_after(10):
                async for piece in stream:
                    text += piece
        return text.decode()

    async def count(self) -> None:
        """Count what is held at the end of a night and at noon, when nobody has talked for hours."""
        while True:
            await anyio.sleep(min((hour * 3600 - self.clock.wall()) % DAY_S or DAY_S for hour in (8.5, 13.5)))
            gc.collect()
            held = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
            held = Counter({kind: count for kind, count in held.items() if OURS.match(kind)})
            held["tasks"] = len(asyncio.all_tasks())
            held["descriptors"] = sum(1 for _ in Path("/proc/self/fd").iterdir())
            held["MB"] = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 1_000_000
            self.nights.append(held)

    def growth(self) -> Iterator[str]:
        """Compare what is held at each rest with the first: as many tasks, and no more of ours but for messages."""
        first, *later = self.nights or [Counter()]
        for number, held in enumerate(later, 2):
            for kind, count in held.items():
                once, each = SPARE.get(kind, OBJECTS)
                most = first[kind] + once + each * (number - 1)
                if count > most:
                    yield f"rest {number}: {count} {kind}, {first[kind]} at the first, {most} allowed"


def _datagrams(unit: socket.socket) -> Iterator[str]:
    while True:
        try:
            yield unit.recv(4096).decode()
        except BlockingIOError:
            return
