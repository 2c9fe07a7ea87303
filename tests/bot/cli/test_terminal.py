"""A chat that is killed leaves its terminal raw; whoever types there next finds it put right.

A pseudo-terminal stands for the window. What starts in it has it as its own, as from a shell.
"""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.bot.cli.window import BOT, ROOT, Window


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
