"""Reports the state of the process to systemd, for units of ``Type=notify``.

Protocol: sd_notify(3) and sd_watchdog_enabled(3). Outside of such a unit nothing is sent.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager

log = logging.getLogger(__name__)

LONGEST_STATUS = 400


class Notify:
    """The connection to systemd. ``watchdog_s`` is its watchdog timeout in seconds, None if it has none."""

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self.watchdog_s = watchdog_s
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._failing = self._ready = False

    @classmethod
    def from_environ(cls, environ: MutableMapping[str, str]) -> Notify:
        """Read systemd's variables and remove them from *environ*, so that no child process can use them."""
        address = environ.pop("NOTIFY_SOCKET", "")
        micros, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        ours = pid in ("", str(os.getpid()))
        watchdog_s = int(micros) / 1e6 if ours and micros.isdecimal() and int(micros) else None
        return cls(address, watchdog_s)

    def send(self, **fields: object) -> bool:
        """Send fields such as ``READY=1`` and return whether that worked. Never waits, never raises."""
        if not self._address:
            return True
        text = "\n".join(f"{name}={str(value).replace(chr(10), ' ')}" for name, value in fields.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._failing:
                log.warning("systemd.unreachable: the state cannot be reported, trying again: %s", error)
            self._failing = True
            return False
        self._failing = False
        return True

    def status(self, text: str) -> None:
        """Show one line in ``systemctl status``."""
        self.send(STATUS=text[:LONGEST_STATUS])

    def ready(self) -> bool:
        self._ready = self.send(READY=1)
        return self._ready

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report a reload for as long as the block runs, so that `systemctl reload` waits for it."""
        if self._ready:  # Before, the end of a reload would count as the end of the start.
            self.send(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        try:
            yield
        finally:
            if self._ready:
                self.send(READY=1)

    def alive(self) -> None:
        self.send(WATCHDOG=1)

    def starting(self, seconds: float) -> None:
        """Ask for so many more seconds before systemd gives up on the start."""
        self.send(EXTEND_TIMEOUT_USEC=int(seconds * 1e6))

    def stopping(self, seconds: float) -> None:
        """Report that the process stops, and how long that may take."""
        self.send(STOPPING=1, EXTEND_TIMEOUT_USEC=int(seconds * 1e6))
