"""The interactive console as a person meets it: its own process, at the end of a real pseudo-terminal."""

import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.transports.console.screen import Screen, show


class Window:
    """A terminal window with the scripted console in it."""

    def __init__(self, rows: int, columns: int) -> None:
        self.master, slave = pty.openpty()
        self.screen = Screen(rows, columns, self.type)
        termios.tcsetwinsize(slave, (rows, columns))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.transports.console.script"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(slave)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    async def enter(self, line: str, *then: str) -> None:
        self.type(f"{line}\r")
        await self.screen.shows(*then)

    async def watch(self) -> None:
        await show(self.master, self.screen)

    def resize(self, rows: int, columns: int) -> None:
        self.screen.rows, self.screen.columns = rows, columns
        termios.tcsetwinsize(self.master, (rows, columns))
        self.process.send_signal(signal.SIGWINCH)


@pytest.fixture
async def window() -> AsyncIterator[Window]:
    window = Window(30, 60)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(window.watch)
            await window.screen.shows("main>")
            yield window
            group.cancel_scope.cancel()
    finally:
        window.process.kill()
        window.process.wait(20)
        os.close(window.master)


async def exit_code(window: Window) -> int:
    return await anyio.to_thread.run_sync(window.process.wait, 20)


async def test_a_resized_window_is_drawn_anew_to_its_width(window):
    window.resize(20, 40)
    await window.enter(
        "page", " alpha  the first letter of the Greek\n        alphabet, and a long cell that\n"
    )
    await window.screen.shows("main>")


async def test_a_stray_print_does_not_tear_the_prompt_and_ctrl_d_leaves(window):
    await window.enter("print", "a stray line\n", "a stray warning\n")
    await window.enter("page", " name   meaning\n", "    return 42\n", "▌ quoted\n")
    await window.enter("hello", "main> hello\nYou said: hello\n\nmain>")
    window.type("\x04")
    assert await exit_code(window) == 0


@pytest.mark.parametrize("before", ["hello", "hold"])
async def test_a_terminal_that_goes_away_ends_the_process(window, before):
    await window.enter(before, "\n\n")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), window.master)
    assert await exit_code(window) == 0
