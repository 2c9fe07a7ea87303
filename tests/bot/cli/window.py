"""A pseudo-terminal that stands for the window of a person."""

import os
import pty
import select
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIMIT_S = 60
BOT = [sys.executable, "-c", "from bot.cli import main; main()"]
NEEDED = termios.ICANON | termios.ECHO | termios.ISIG


class Window:
    """A terminal that outlives what runs in it; ``shown`` is all that was written there."""

    def __init__(self, folder: Path) -> None:
        self._ours, self._theirs = pty.openpty()
        self._folder, self._running = folder, list[subprocess.Popen[bytes]]()
        self.shown = ""

    def start(self, *command: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        process = subprocess.Popen(
            command,
            cwd=cwd or self._folder,
            env={**environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "LANG": "C.UTF-8"},
            preexec_fn=lambda: os.login_tty(os.dup(self._theirs)),
        )
        self._running.append(process)
        return process

    def until(self, text: str) -> None:
        seen, deadline = len(self.shown), time.monotonic() + LIMIT_S
        while text not in self.shown[seen:]:
            ready, _, _ = select.select([self._ours], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{text!r} was not shown:\n{self.shown[seen:]}"
            more = os.read(self._ours, 65_536).decode("utf-8", "replace")
            self.shown += more
            if "\x1b[6n" in more:
                self.type("\x1b[1;1R")  # a terminal tells where its cursor is

    def ends(self, process: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([self._ours], [], [], 0.05)[0]:
                self.shown += os.read(self._ours, 65_536).decode("utf-8", "replace")
        return process.wait(1)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    @property
    def usable(self) -> bool:
        """Whether a shell's line can be typed: with echo, Ctrl-C, and an Enter that ends it."""
        mode = termios.tcgetattr(self._theirs)
        return bool(mode[3] & NEEDED == NEEDED and mode[0] & termios.ICRNL)

    def make_raw(self) -> None:
        tty.setraw(self._theirs)

    def forget_typed(self) -> None:
        termios.tcflush(self._theirs, termios.TCIFLUSH)

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        os.close(self._ours)
        os.close(self._theirs)
