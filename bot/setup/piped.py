"""Secrets that are piped in. A pipe that nobody writes to does not hold the setup up."""

from __future__ import annotations

import io
import os
import select
import sys
import time

from bot.settings import MAX_SECRET_BYTES

WITHIN_S = 5.0


def read_piped(lines: int, *, within_s: float = WITHIN_S) -> str:
    """Return what is piped in: *lines* lines, or until it ends or *within_s* seconds are over."""
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        source = sys.stdin.fileno()
    except (OSError, io.UnsupportedOperation):
        return sys.stdin.read(MAX_SECRET_BYTES)  # no file at all: there is nothing to wait for
    data, until = b"", time.monotonic() + within_s
    while len(data) < MAX_SECRET_BYTES and data.count(b"\n") < lines:
        if not select.select([source], [], [], max(0.0, until - time.monotonic()))[0]:
            break
        if not (more := os.read(source, 4096)):
            break
        data += more
    return data.decode("utf-8", "replace")
