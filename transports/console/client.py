"""The console as a transport, at a terminal or through a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

import anyio.to_thread

from threads.errors import TransportRejected, TransportUnavailable
from threads.model import Attachment, Author, Earlier, Outgoing, Sink, ThreadId, TurnEvent
from transports.base.transport import CONSOLE_USER, Capabilities, LinkState
from transports.console import files
from transports.console.ask import Ask, OneQuestion
from transports.console.lookups import NOTHING, Lookups
from transports.console.parse import Sender
from transports.console.pipe import Pipe
from transports.console.streams import Streams

if TYPE_CHECKING:
    from transports.console.terminal import Terminal


class Console:
    """A chat with the person at this terminal, or through a pipe.

    ``session`` must be unique in the data folder: message ids begin with it. ``history_file`` stores what is typed,
    mode 0600. ``commands`` are those of the bot, with their meanings, for ``/help`` and completion. ``attached`` is
    the folder for files from the bot, if it may send any. ``lookups`` are for a terminal. ``interactive`` overrides
    the check of the streams. With a ``question`` that is all that is asked.
    """

    name = "console"

    def __init__(
        self,
        *,
        session: str,
        history_file: Path | None = None,
        commands: Mapping[str, str] = MappingProxyType({}),
        attached: Path | None = None,
        lookups: Lookups = NOTHING,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        interactive: bool | None = None,
        question: OneQuestion | None = None,
    ) -> None:
        self._session = session
        self._posts = count(1)
        streams = (stdin or sys.stdin, stdout or sys.stdout, stderr or sys.stderr)
        at_terminal = _is_terminal(*streams[:2]) if interactive is None else interactive
        self.interactive = at_terminal and question is None
        self._attached = attached
        self.capabilities = Capabilities(
            lands_late=False,
            asks=self.interactive or bool(question and question.yes),
            files=attached is not None,
        )
        sender = Sender(session, Author(CONSOLE_USER))
        self._frontend: Ask | Pipe | Terminal
        if question:
            self._frontend = Ask(sender, Streams(*streams), question)
        elif self.interactive:
            # prompt_toolkit and rich take 0.2 s to import; a pipe must not wait for them.
            from transports.console.terminal import Terminal  # noqa: PLC0415

            self._frontend = Terminal(sender, commands, history_file, lookups, (stdin, stdout))
        else:
            self._frontend = Pipe(sender, Streams(*streams), commands)

    trouble = ""
    silent_s: float | None = None

    @property
    def state(self) -> LinkState:
        return "connected"

    async def reconnected(self) -> None:
        """Return at once: a terminal does not reconnect."""

    @property
    def exit_code(self) -> int:
        """0 if every piped line, or the question, succeeded; always 0 at a terminal."""
        return self._frontend.exit_code

    async def serve(self, sink: Sink) -> None:
        """Return when the input ends or the person leaves."""
        await self._frontend.serve(sink)

    async def post(self, outgoing: Outgoing) -> str:
        await self._frontend.post(outgoing)
        return f"{self._session}-shown-{next(self._posts)}"

    async def find(self, thread: ThreadId, key: str) -> str | None:  # noqa: ARG002
        """Return None: a screen cannot be searched."""
        return None

    def link(self, thread: ThreadId) -> str:  # noqa: ARG002
        return ""

    async def ensure_open(self, thread: ThreadId, message_id: str) -> None:
        """Return: nothing that is posted here is refused."""

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:  # noqa: ARG002
        return Earlier()

    def download(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a file that the person gave. Raises `threads.errors.FileUnavailable`."""
        return files.open_attachment(attachment)

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Copy the file into the folder, and print its path. Raises `threads.errors.PostFailed`."""
        if self._attached is None:
            raise TransportRejected(f"no folder to put files into: {name}")
        try:
            path, size = await anyio.to_thread.run_sync(files.copy_into, self._attached, file, name)
        except OSError as error:
            raise TransportUnavailable(f"the file was not kept: {error.strerror}") from error
        from rich.filesize import decimal  # noqa: PLC0415 - as above

        await self._frontend.post(Outgoing(thread, key, f"File {name} ({decimal(size)}): {path}", "notice"))

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Draw the event; through a pipe only the outcome counts."""
        self._frontend.show(thread, message_id, event)


def _is_terminal(stdin: TextIO | None, stdout: TextIO | None) -> bool:
    """Return whether both streams are a terminal that can move its cursor."""
    if stdin is None or stdout is None or os.environ.get("TERM", "dumb") in {"", "dumb", "unknown"}:
        return False
    return stdin.isatty() and stdout.isatty()
