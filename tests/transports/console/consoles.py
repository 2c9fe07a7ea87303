"""Consoles with the scripted bot behind them: between pipes, and at a terminal whose screen is a string."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from tests.patience import WITHIN_S
from tests.transports.console.screen import Screen
from tests.transports.console.script import COMMANDS, ScriptedBot
from threads.background import background_tasks
from transports.console import Console


class Piped:
    """A console between three real pipes, with the scripted bot behind it."""

    def __init__(self, **options: Any) -> None:
        ends = [os.pipe() for _ in range(3)]
        self.typed, self.answers, self.notes = ends[0][1], ends[1][0], ends[2][0]
        self.streams = [os.fdopen(ends[0][0]), os.fdopen(ends[1][1], "w"), os.fdopen(ends[2][1], "w")]
        stdin, stdout, stderr = self.streams
        self.console = Console(session="s1", stdin=stdin, stdout=stdout, stderr=stderr, **options)
        self.bot: ScriptedBot

    async def type(self, data: bytes, *, end: bool = True) -> None:
        while data:
            await anyio.wait_writable(self.typed)
            data = data[os.write(self.typed, data[:4096]) :]
        if end:
            self.close("typed")

    async def read(self, end: int) -> str:
        data = b""
        while True:
            await anyio.wait_readable(end)
            more = os.read(end, 65_536)
            data += more
            if not more:
                return data.decode()

    def close(self, *names: str) -> None:
        for name in names:
            if (end := getattr(self, name)) >= 0:
                os.close(end)
                setattr(self, name, -1)

    async def serve(self) -> None:
        with anyio.fail_after(WITHIN_S):
            await self.console.serve(self.bot.sink)
        for stream in self.streams:
            stream.close()

    async def run(self, data: bytes) -> tuple[str, str]:
        """Serve *data* to its end and return what was said on standard output and error."""
        said = {}

        async def keep(name: str) -> None:
            said[name] = await self.read(getattr(self, name))

        async with anyio.create_task_group() as group:
            group.start_soon(self.type, data)
            group.start_soon(keep, "answers")
            group.start_soon(keep, "notes")
            await self.serve()
        return said["answers"], said["notes"]

    @property
    def got(self) -> list[str]:
        return [message.text for message in self.bot.got]


async def shown(piped: Piped, text: str) -> None:
    """Wait until standard output holds *text*, and take it."""
    data = b""
    with anyio.fail_after(WITHIN_S):
        while text.encode() not in data:
            await anyio.wait_readable(piped.answers)
            data += os.read(piped.answers, 1024)


@asynccontextmanager
async def between_pipes(**options: Any) -> AsyncIterator[Piped]:
    piped = Piped(**options)
    async with background_tasks() as group:
        piped.bot = ScriptedBot(piped.console, group)
        yield piped
    piped.close("typed", "answers", "notes")
    for stream in piped.streams:
        stream.close()


class TerminalSession:
    def __init__(self, keys: PipeInput, screen: Screen, console: Console, bot: ScriptedBot) -> None:
        self.keys, self.screen, self.console, self.bot = keys, screen, console, bot
        self.left = anyio.Event()

    async def serve(self) -> None:
        await self.console.serve(self.bot.sink)
        self.left.set()

    async def enter(self, line: str, *then: str) -> None:
        """Type a line, and wait until the screen shows these texts."""
        self.keys.send_text(f"{line}\r")
        await self.screen.shows(*then)

    async def ended(self) -> None:
        with anyio.fail_after(WITHIN_S):
            await self.left.wait()

    @property
    def got(self) -> list[str]:
        return [message.text for message in self.bot.got]


@contextmanager
def terminal(**options: Any) -> Iterator[tuple[PipeInput, Screen, Console]]:
    with create_pipe_input() as keys:
        screen = Screen(30, 60, keys.send_text)
        output = Vt100_Output(screen, lambda: Size(screen.rows, screen.columns), term="xterm")
        with create_app_session(input=keys, output=output):
            yield keys, screen, Console(session="s1", interactive=True, commands=COMMANDS, **options)


@asynccontextmanager
async def at_terminal(**options: Any) -> AsyncIterator[TerminalSession]:
    with terminal(**options) as (keys, screen, console):
        async with background_tasks() as group:
            session = TerminalSession(keys, screen, console, ScriptedBot(console, group))
            group.start_soon(session.serve)
            await screen.shows("main>")
            yield session
