"""A chat that is killed leaves its terminal raw; whoever types there next finds it put right.

A pseudo-terminal stands for the window. What starts in it has it as its own, as from a shell.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
LIMIT_S = 60
BOT = [sys.executable, "-c", "from bot.admin.cli import main; main()"]
NEEDED = termios.ICANON | termios.ECHO | termios.ISIG


class Window:
    """A terminal that outlives what runs in it; ``shown`` is all that was written there."""

    def __init__(self, folder: Path) -> None:
        self._ours, self._theirs = pty.openpty()
        self._folder, self._running = folder, list[subprocess.Popen[bytes]]()
        self.shown = ""

    def start(self, *command: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        process = subprocess.Popen(
            command,
            cwd=cwd or self._folder,
            env={**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", "LANG": "C.UTF-8"},
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


@pytest.fixture
def window(tmp_path):
    (tmp_path / "bot").mkdir()
    window = Window(tmp_path / "bot")
    yield window
    window.close()


def killed_chat(window: Window) -> None:
    chat = window.start(*BOT, "chat")
    window.until("main>")
    chat.send_signal(signal.SIGKILL)
    assert window.ends(chat) == -signal.SIGKILL
    assert not window.usable  # or what follows proves nothing
    window.forget_typed()


def test_after_a_killed_chat_init_hears_enter_again(window, tmp_path):
    killed_chat(window)
    init = window.start(*BOT, "init", "--no-verify")
    window.until("Number, or any provider/model")
    window.type("offline/demo\r")
    assert window.ends(init) == 0
    assert (tmp_path / "bot" / "settings.json").exists()
    assert window.usable


def test_after_a_killed_chat_the_next_one_leaves_the_terminal_as_it_should_be(window):
    killed_chat(window)
    chat = window.start(*BOT, "chat")
    window.until("main>")
    window.type("\x04")
    assert window.ends(chat) == 0
    assert window.usable


def made(window: Window, folder: Path, script: str) -> subprocess.Popen[bytes]:
    """Start `make chat`, with this script in the place of the installed program."""
    if not (make := shutil.which("make")):
        pytest.skip("there is no make here")
    (folder / "threadfast").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "threadfast").chmod(0o755)
    return window.start(make, "-s", "-o", ".venv/.installed", f"BIN={folder}", "chat", cwd=ROOT)


def test_make_chat_puts_the_terminal_right_before_it_starts(window, tmp_path):
    window.make_raw()
    make = made(window, tmp_path, "stty -a")
    window.until(" icanon")
    assert window.ends(make) == 0
    assert window.usable


def test_make_chat_puts_the_terminal_right_when_the_chat_was_killed(window, tmp_path):
    make = made(window, tmp_path, "stty raw -echo; kill -9 $$")
    assert window.ends(make) == 2
    assert "137" in window.shown
    assert window.usable
