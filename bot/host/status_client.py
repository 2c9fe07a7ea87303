"""Asks the bot that serves a data folder for its status.

| the lock of the folder | its socket                 | result                                                      |
|------------------------|----------------------------|-------------------------------------------------------------|
| (not looked at)        | answers                    | `Status`                                                    |
| nobody holds it        | absent, or refuses         | ``absent``: no bot runs here                                |
| held                   | absent, or refuses         | ``mute``: starting, stopping, or a chat, which needs none   |
| held                   | takes the call, but is silent | ``stuck``: its event loop does not turn                  |
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from pydantic import TypeAdapter

from bot.ports.status import ABSENT, NoStatus, Status, socket_path

WITHIN_S = 3.0
MOST_BYTES = 1_000_000
_REQUEST = b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def find_running_bot(data: Path) -> Status | NoStatus:
    """Return the status of the bot on this folder. A bot that this user may not ask counts as absent. Blocking."""
    try:
        return ask(data)
    except OSError:
        return ABSENT


def ask(data: Path, within_s: float = WITHIN_S) -> Status | NoStatus:
    """Return the status of the bot on *data*. Raises OSError if this user may not ask. Blocking."""
    try:
        return TypeAdapter(Status).validate_json(_get(data, within_s))
    except (TimeoutError, BlockingIOError):  # the second if too many wait to be accepted
        return NoStatus("stuck", lock_holder(data) or 0)
    except (FileNotFoundError, ConnectionError, ValueError):
        # ValueError: the answer is cut off, or comes from another version.
        pid = lock_holder(data)
        return ABSENT if pid is None else NoStatus("mute", pid)


def _get(data: Path, within_s: float) -> bytes:
    """Return the body of the page, or b"" if the bot refuses it. The bot closes the connection after it."""
    deadline, response = time.monotonic() + within_s, b""
    with socket_path(data) as path, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(within_s)
        connection.connect(path)
        connection.sendall(_REQUEST)
        while (part := connection.recv(65_536)) and len(response) < MOST_BYTES:
            response += part
            connection.settimeout(max(0.001, deadline - time.monotonic()))
    head, _, body = response.partition(b"\r\n\r\n")
    return body if head.startswith(b"HTTP/1.1 200 ") else b""


def lock_holder(data: Path) -> int | None:
    """Return the pid of the process that holds the data folder: 0 if unknown, None if no process does.

    It comes from the kernel's list of locks. Trying the lock would take it for a moment, and refuse a bot that starts
    in that moment.
    """
    try:
        lock = (data / "lock").stat()
        locks = Path("/proc/locks").read_text("ascii", "replace").splitlines()
    except FileNotFoundError:
        return None
    for line in locks:  # such as "1: FLOCK  ADVISORY  WRITE 4711 08:02:1234 0 EOF"
        words = line.split()
        if "FLOCK" in words and words[-3].rpartition(":")[2] == str(lock.st_ino):
            return max(0, int(words[-4]))
    return None


def silence(found: NoStatus) -> str:
    """Return why there is no status, for people."""
    who = f"process {found.pid}" if found.pid else "some process"
    match found.state:
        case "absent":
            return "not running: nothing serves this data folder"
        case "mute":
            return f"{who} holds the data folder and gives no status: it is starting, stopping, or a chat"
        case "stuck":
            end = f"; end it with: kill -9 {found.pid}" if found.pid else ""
            return f"{who} is stuck: it accepts connections but does not answer{end}"


def span(seconds: float) -> str:
    """Return a length of time in its two largest units."""
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // smaller)} {below}"
    return f"{seconds:.0f} s"
