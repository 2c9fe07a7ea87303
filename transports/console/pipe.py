"""The chat without a terminal: lines in, answers out, errors on standard error.

A line is sent when the one before is settled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import assert_never

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from threads.errors import StoreUnavailable, TransportRejected
from threads.model import Outgoing, Sink, ThreadId, TurnEvent, TurnSettled, Waiting
from transports.console import parse
from transports.console.streams import Streams
from transports.shared.live.activity import waiting_words

MOST_WAITS = 20
"""Stored lines about waits, until standard error takes them."""
SUCCESS = frozenset({"answered", "merged", "stopped", "withdrawn"})


class _Sent:
    """A line on its way to its outcome."""

    def __init__(self, message_id: str, number: int) -> None:
        self.message_id, self.number = message_id, number
        self.settled = anyio.Event()
        self.outcome = ""


class Pipe:
    """Serves standard input line by line. ``exit_code`` is 0 as long as every line succeeded."""

    def __init__(self, sender: parse.Sender, streams: Streams, commands: Mapping[str, str]) -> None:
        self.exit_code = 0
        self._sender, self._commands = sender, commands
        self._streams = streams
        self._sent: _Sent | None = None
        self._thread = parse.FIRST_THREAD
        self._done = False
        self._waits: MemoryObjectSendStream[str]

    async def serve(self, sink: Sink) -> None:
        """Return when the input ended, or nobody reads the answers any more, and every line is settled."""
        self._waits, waits = anyio.create_memory_object_stream[str](MOST_WAITS)
        async with anyio.create_task_group() as tasks, self._waits:
            tasks.start_soon(self._tell_waits, waits)
            await self._serve_lines(sink)

    async def _tell_waits(self, waits: MemoryObjectReceiveStream[str]) -> None:
        async with waits:
            async for text in waits:
                await self._streams.note(text)

    async def _serve_lines(self, sink: Sink) -> None:
        lines, number = parse.Lines(), 0
        while not self._done:
            data = await self._read()
            for line in lines.feed(data) if data else lines.end():
                number += 1
                if not self._done:
                    await self._take(line, number, sink)
            self._done = self._done or not data

    async def post(self, outgoing: Outgoing) -> None:
        """Write an answer. Raises `TransportRejected` when standard output takes no more."""
        name = outgoing.thread.root
        heading = "" if name == self._thread else f"[{name}] "
        await self._print(heading + outgoing.text)

    def show(self, _: ThreadId, message_id: str, event: TurnEvent) -> None:
        if self._sent is None or self._sent.message_id != message_id:
            return
        if isinstance(event, TurnSettled):
            self._sent.outcome = event.outcome
            self._sent.settled.set()
        elif isinstance(event, Waiting):
            text = f"line {self._sent.number} {waiting_words(event)}"
            with contextlib.suppress(anyio.WouldBlock):  # nobody reads that fast
                self._waits.send_nowait(text)

    async def _take(self, line: bytes | None, number: int, sink: Sink) -> None:
        if line is None:
            await self._fault(f"line {number} was not sent: it is longer than {parse.MAX_LINE:,} bytes")
            return
        action = parse.action(line.decode(errors="replace").removesuffix("\r"), self._commands)
        if action is None:
            return
        match action.kind:
            case "send":
                await self._say(action.text, number, sink)
            case "switch":
                self._thread = action.text
            case "list":
                await self._answer(f"This is thread {self._thread}.")
            case "attach":
                # A line may come from anywhere, and only a person decides which of their files is read.
                await self._fault(f"line {number}: files can only be attached at a terminal")
            case "help":
                await self._answer(parse.help_text(self._commands))
            case "reject":
                await self._fault(f"line {number}: {action.text}")
            case "quit":
                self._done = True
            case _:
                assert_never(action.kind)

    async def _say(self, text: str, number: int, sink: Sink) -> None:
        incoming = self._sender.message(text, self._thread)
        self._sent = sent = _Sent(incoming.id, number)
        try:
            await sink(incoming)
        except StoreUnavailable:
            await self._fault(f"line {number} was not sent: it could not be saved to disk")
            return
        await sent.settled.wait()
        if sent.outcome not in SUCCESS:
            await self._fault(f"line {number}: {sent.outcome}")

    async def _read(self) -> bytes:
        try:
            return await self._streams.read()
        except OSError as error:
            await self._fault(f"standard input cannot be read: {error.strerror}")
            return b""

    async def _print(self, text: str) -> None:
        try:
            await self._streams.print(text)
        except OSError as error:
            self._done = True
            await self._fault(f"standard output takes no more answers: {error.strerror}")
            raise TransportRejected(f"standard output: {error.strerror}") from error

    async def _answer(self, text: str) -> None:
        with contextlib.suppress(TransportRejected):  # reported by _print
            await self._print(text)

    async def _fault(self, text: str) -> None:
        self.exit_code = 1
        await self._streams.note(text)
