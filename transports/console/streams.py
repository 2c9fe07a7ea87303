"""Standard input, output and error without a terminal.

A descriptor is read or written only when it is ready, so nothing blocks the event loop or outlives a cancellation.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TextIO

import anyio
import anyio.to_thread

from threads.errors import TransportRejected
from transports.base.text import without_controls

READ_SIZE = 65_536


@dataclass(slots=True)
class Streams:
    """The three streams of a process; one that is None is closed."""

    stdin: TextIO | None
    stdout: TextIO | None
    stderr: TextIO | None
    _writing: anyio.Lock = field(default_factory=anyio.Lock)

    async def read(self) -> bytes:
        """Return the next bytes, blank at the end. Raises OSError."""
        if self.stdin is None:
            return b""
        await _ready(anyio.wait_readable, self.stdin.fileno())
        return await anyio.to_thread.run_sync(os.read, self.stdin.fileno(), READ_SIZE)

    async def print(self, text: str) -> None:
        """Write a text to standard output. Raises `TransportRejected` when it takes no more."""
        try:
            await self._write(self.stdout, text)
        except OSError as error:
            raise TransportRejected(f"standard output takes no more answers: {error.strerror}") from error

    async def note(self, text: str) -> None:
        """Write a text to standard error; may be dropped, as no place is left to say so."""
        with contextlib.suppress(OSError):
            await self._write(self.stderr, text)

    async def _write(self, stream: TextIO | None, text: str) -> None:
        if stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        line = without_controls(text).rstrip("\n") + "\n"
        data = memoryview(line.encode(stream.encoding, errors="replace"))
        async with self._writing:
            while data:
                await _ready(anyio.wait_writable, stream.fileno())
                # A ready pipe takes this many bytes without blocking, and no promise holds for more.
                size = await anyio.to_thread.run_sync(os.write, stream.fileno(), data[: select.PIPE_BUF])
                data = data[size:]


async def _ready(wait: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    """Wait until *descriptor* can be used at once; a regular file always can, and epoll refuses to watch it."""
    with contextlib.suppress(PermissionError):
        await wait(descriptor)
