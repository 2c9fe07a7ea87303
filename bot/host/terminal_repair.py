"""Restores a terminal that a killed chat left in raw mode.

A chat reads single keys without echo. After kill -9 the terminal stays so, and Enter sends no line end any more.
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
    """Restore line editing, echo and Ctrl-C if the terminal is in raw mode."""
    with suppress(termios.error, OSError, ValueError):  # no terminal: nothing to restore
        fd = sys.stdin.fileno() if sys.stdin else -1
        # A process in the background would be stopped.
        if not os.isatty(fd) or os.tcgetpgrp(fd) != os.getpgrp():
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
