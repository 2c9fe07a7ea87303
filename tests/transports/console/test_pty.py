"""The interactive console as a person meets it: its own process, at the end of a real pseudo-terminal."""

import os
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.transports.console.window import Window


class ScriptedWindow(Window):
    """A terminal window with the scripted console in it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.transports.console.script"]
        super().__init__(30, 60, partial(subprocess.Popen, command, env={**os.environ, "TERM": "xterm"}))

    async def enter(self, line: str, *then: str) -> None:
        self.type(f"{line}\r")
        await self.screen.shows(*then)

    def resize(self, rows: int, columns: int) -> None:
        self.screen.rows, self.screen.columns = rows, columns
        termios.tcsetwinsize(self.master, (rows, columns))
        self.process.send_signal(signal.SIGWINCH)


@pytest.fixture
async def window() -> AsyncIterator[ScriptedWindow]:
    async with ScriptedWindow().open() as window:
        yield window


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
    assert await window.ended() == 0


@pytest.mark.parametrize("before", ["hello", "hold"])
async def test_a_terminal_that_goes_away_ends_the_process(window, before):
    await window.enter(before, "\n\n")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), window.master)
    assert await window.ended() == 0
