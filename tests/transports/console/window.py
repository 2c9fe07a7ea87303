"""A window of a person: a program at the end of a real pseudo-terminal, and what its screen shows."""

import os
import pty
import subprocess
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

import anyio

from tests.transports.console.screen import Screen, show
from threads.background import background_tasks


class Window:
    """*start* starts the console, with the streams that it is given."""

    def __init__(self, rows: int, columns: int, start: Callable[..., subprocess.Popen]) -> None:
        self.master, slave = pty.openpty()
        self.screen = Screen(rows, columns, self.type)
        termios.tcsetwinsize(slave, (rows, columns))
        self.process = start(stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    async def ended(self) -> int:
        return await anyio.to_thread.run_sync(self.process.wait, 20)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Look at the screen, from the first prompt on."""
        try:
            async with background_tasks() as group:
                group.start_soon(show, self.master, self.screen)
                await self.screen.shows("main>")
                yield self
        finally:
            self.process.kill()
            self.process.wait(20)
            os.close(self.master)
