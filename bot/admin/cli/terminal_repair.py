"""The terminal as a command finds it: what a killed chat left raw is put right before anybody types.

A chat reads keys one by one, without echo. Killed with -9 it cannot undo that, and whoever asks for a line next waits
for a line end that Enter does not send any more.
"""

from __future__ import annotations

import os
import sys
import termios
from contextlib import suppress

IFLAG, OFLAG, LFLAG = 0, 1, 3
"""Places in what `termios.tcgetattr` returns."""

INPUT = termios.ICRNL | termios.IXON
OUTPUT = termios.OPOST | termios.ONLCR
LOCAL = termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN
NEEDED = termios.ICANON | termios.ECHO | termios.ISIG
"""No shell leaves a terminal without these; a program that reads keys does, until it ends."""

PLAIN = "\x1b[?2004l\x1b[?1l\x1b[?7h\x1b[?25h\x1b[0m"
"""Pastes are not marked, cursor keys and line wrap are as usual, the cursor is seen, no colour."""


def repair_terminal() -> None:
    """Give a terminal that was left raw its line editing, echo and Ctrl-C back; anything else is left as it is."""
    with suppress(termios.error, OSError, ValueError):  # no terminal, or one that is gone: nothing to fix
        fd = sys.stdin.fileno() if sys.stdin else -1
        if (
            not os.isatty(fd) or os.tcgetpgrp(fd) != os.getpgrp()
        ):  # in the background it would be stopped for it
            return
        mode = termios.tcgetattr(fd)
        if mode[IFLAG] & termios.ICRNL and mode[LFLAG] & NEEDED == NEEDED:
            return
        mode[IFLAG] |= INPUT
        mode[OFLAG] |= OUTPUT
        mode[LFLAG] |= LOCAL
        termios.tcsetattr(fd, termios.TCSANOW, mode)
        if sys.stdout and sys.stdout.isatty():
            sys.stdout.write(PLAIN)
            sys.stdout.flush()
