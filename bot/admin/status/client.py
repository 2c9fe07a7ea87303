"""Asks the bot that serves a data folder for its status.

| the lock of the folder | its socket                 | result                                                      |
|------------------------|----------------------------|-------------------------------------------------------------|
| (not looked at)        | answers                    | `Status`                                                    |
| nobody holds it        | absent, or refuses         | ``absent``: no bot runs here                                |
| held                   | absent, or refuses         | ``mute``: starting, stopping, or a chat, which needs none   |
| held                   | takes the call, but is silent | ``stuck``: its event loop does not turn                  |
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
import h11
from pydantic import TypeAdapter

from bot.ports.status import Status, socket_path

WITHIN_S = 3.0
MOST_BYTES = 1_000_000
_REQUEST = h11.Request(
    method="GET", target="/status", headers=[("Host", "localhost"), ("Connection", "close")]
)

_NO_ANSWER = (
    FileNotFoundError,
    ConnectionError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    h11.ProtocolError,
    ValueError,  # another version with another format
)


@dataclass(frozen=True, slots=True)
class NoStatus:
    """There is no status. ``pid`` holds the data folder; 0 if no process does, or it is unknown."""

    state: Literal["absent", "mute", "stuck"]
    pid: int = 0


ABSENT = NoStatus("absent")


async def find_running_bot(data: Path) -> Status | NoStatus:
    """Return the status of the bot on this folder. A bot that this user may not ask counts as absent."""
    try:
        return await ask(data)
    except OSError:
        return ABSENT


async def ask(data: Path, within_s: float = WITHIN_S) -> Status | NoStatus:
    """Return the status of the bot on *data*. Raises OSError if this user may not ask."""
    try:
        with anyio.fail_after(within_s), socket_path(data) as path:
            return TypeAdapter(Status).validate_json(await _get(path))
    except TimeoutError:
        return NoStatus("stuck", lock_holder(data) or 0)
    except _NO_ANSWER:
        pid = lock_holder(data)
        return ABSENT if pid is None else NoStatus("mute", pid)


async def _get(path: str) -> bytes:
    """Return the body of the page. Raises `anyio.EndOfStream` if it is not complete."""
    peer, body = h11.Connection(h11.CLIENT), bytearray()
    async with await anyio.connect_unix(path) as stream:
        await stream.send((peer.send(_REQUEST) or b"") + (peer.send(h11.EndOfMessage()) or b""))
        while True:
            match peer.next_event():
                case h11.NEED_DATA if len(body) < MOST_BYTES:
                    peer.receive_data(await stream.receive())
                case h11.Response(status_code=200):
                    pass
                case h11.Data(data=data):
                    body += data
                case h11.EndOfMessage():
                    return bytes(body)
                case _:
                    raise anyio.EndOfStream


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
