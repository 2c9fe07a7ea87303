"""`threadfast events`: the events of the bot on a data folder, as JSON lines.

| the connection                   | without --follow      | with --follow                                    |
|----------------------------------|-----------------------|--------------------------------------------------|
| nobody listens at the first try  | says so, exit code 4  | the same                                         |
| it ends after a final gap        | exit code 1           | the same: this reader was too slow               |
| it ends                          | exit code 0           | connects again, and goes on after the last event |
| the bot refuses                  | says why, exit code 1 | the same                                         |
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlencode

import click

from bot.extensions.status.status_report import NOT_RUNNING
from bot.host.status_client import WITHIN_S, lock_holder, silence
from bot.ports.status import ABSENT, EVENTS, NoStatus, socket_path
from bot.reports.safe_text import flat

AGAIN_S = 0.5
LONGEST_LINE = 1_000_000
"""Bytes; a line of the bot has a few hundred."""

TOO_SLOW = (
    "Cut off: this reader was too slow for the bot. --since goes on after the last number that was printed."
)


@dataclass(frozen=True, slots=True)
class EventFilter:
    kinds: tuple[str, ...]
    thread: str


class Refused(Exception):
    """The bot does not serve this request; the text is for people."""


def run_events(data: Path, wanted: EventFilter, since: int | None, *, follow: bool) -> int:
    """Print the events and return the exit code. Blocking.

    Raises `PermissionError`, and `BrokenPipeError` when nobody reads the output.
    """
    reader, met = _Reader(data, wanted, since, follow), False
    while True:
        try:
            with reader.connected() as stream:
                if met:
                    click.echo("The bot is back.", err=True)
                met, lost = True, reader.copy(stream)
        except Refused as error:
            click.echo(str(error), err=True)
            return 1
        except (FileNotFoundError, ConnectionError, TimeoutError) as error:
            if reader.unread:
                raise
            if not met:
                click.echo(silence(_silence(data, error)), err=True)
                return NOT_RUNNING
        else:
            if lost:
                click.echo(TOO_SLOW, err=True)
                return 1
            if not follow:
                return 0
            click.echo("The bot has stopped; waiting until it is back.", err=True)
        time.sleep(AGAIN_S)


@dataclass(slots=True)
class _Reader:
    """``upto`` is the number of the last event that was printed. ``unread``: nobody reads the output any more."""

    data: Path
    wanted: EventFilter
    upto: int | None
    follow: bool
    unread: bool = False

    @contextmanager
    def connected(self) -> Iterator[BinaryIO]:
        """Yield the stream of lines. Raises OSError if nobody serves it, and `Refused`."""
        with socket_path(self.data) as path, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WITHIN_S)
            connection.connect(path)
            # HTTP/1.0, so that the lines come as they are, and the end of the connection ends them.
            connection.sendall(f"GET {EVENTS}?{self._query()} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            with connection.makefile("rb") as stream:
                status = stream.readline(LONGEST_LINE)
                while stream.readline(LONGEST_LINE).strip():
                    pass
                if b" 200 " not in status:
                    raise _refusal(status, stream.readline(LONGEST_LINE))
                connection.settimeout(None)
                yield stream

    def copy(self, stream: BinaryIO) -> bool:
        """Print all lines; return whether the bot cut this reader off. A broken last line is left out."""
        final = False
        while (line := stream.readline(LONGEST_LINE)).endswith(b"\n"):
            try:
                event = json.loads(line)
            except ValueError:
                raise ConnectionError("this is not a stream of events") from None
            self.upto, final = event["seq"], event.get("final", False)
            try:
                sys.stdout.write(line.decode("ascii"))
                sys.stdout.flush()
            except BrokenPipeError:
                self.unread = True
                raise
        return final

    def _query(self) -> str:
        pairs = [("kind", kind) for kind in self.wanted.kinds]
        pairs += [("thread", self.wanted.thread)] if self.wanted.thread else []
        pairs += [("since", str(self.upto))] if self.upto is not None else []
        return urlencode([*pairs, *([("follow", "1")] if self.follow else [])], errors="replace")


def _refusal(status: bytes, why: bytes) -> Exception:
    if not status:
        return ConnectionError("it hung up")
    if b" 404 " in status:
        return Refused("The bot that runs here is of an earlier version and has no events; restart it.")
    return Refused(f"The bot refuses: {flat(why.decode('utf-8', 'replace').strip())}.")


def _silence(data: Path, error: OSError) -> NoStatus:
    """Return who holds the data folder, if anybody does."""
    pid = lock_holder(data)
    if isinstance(error, TimeoutError):
        return NoStatus("stuck", pid or 0)
    return ABSENT if pid is None else NoStatus("mute", pid)
