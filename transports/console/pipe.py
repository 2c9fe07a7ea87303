"""The chat without a terminal: lines in, answers out, errors on standard error.

A line is sent when the one before is settled.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import assert_never

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from threads.errors import StoreUnavailable, TransportRejected
from threads.model import Outgoing, Sink, ThreadId, TurnEvent, TurnSettled, Waiting
from transports.console import parse
from transports.console.streams import Streams
from transports.shared.live.activity import waiting_words

SUCCESS = frozenset({"answered", "merged", "stopped", "withdrawn"})


class Pipe:
    """Serves standard input line by line. ``exit_code`` is 0 as long as every line succeeded."""

    def __init__(self, sender: parse.Sender, streams: Streams, commands: Mapping[str, str]) -> None:
        self.exit_code = 0
        self._sender, self._commands = sender, commands
        self._streams = streams
        self._message_id: str | None = None
        self._events: MemoryObjectSendStream[TurnSettled | Waiting]
        self._thread = parse.FIRST_THREAD
        self._done = False

    async def serve(self, sink: Sink) -> None:
        """Return when the input ended, or nobody reads the answers any more, and every line is settled."""
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
        if outgoing.reply_to and not self._sender.sent(outgoing.reply_to):
            await self._streams.note(f"[{name}] {outgoing.text}")  # what a process left that was killed
            return
        heading = "" if name == self._thread else f"[{name}] "
        await self._print(heading + outgoing.text)

    def show(self, _: ThreadId, message_id: str, event: TurnEvent) -> None:
        if message_id == self._message_id and isinstance(event, TurnSettled | Waiting):
            with contextlib.suppress(anyio.ClosedResourceError):  # settled already
                self._events.send_nowait(event)

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
        # Unbounded: it fills only as fast as a turn waits.
        self._events, events = anyio.create_memory_object_stream[TurnSettled | Waiting](math.inf)
        self._message_id = incoming.id
        with self._events, events:
            try:
                await sink(incoming)
            except StoreUnavailable:
                await self._fault(f"line {number} was not sent: it could not be saved to disk")
                return
            while isinstance(event := await events.receive(), Waiting):
                await self._streams.note(f"line {number} {waiting_words(event)}")
        if event.outcome not in SUCCESS:
            await self._fault(f"line {number}: {event.outcome}")

    async def _read(self) -> bytes:
        try:
            return await self._streams.read()
        except OSError as error:
            await self._fault(f"standard input cannot be read: {error.strerror}")
            return b""

    async def _print(self, text: str) -> None:
        try:
            await self._streams.print(text)
        except TransportRejected as error:
            self._done = True
            await self._fault(str(error))
            raise

    async def _answer(self, text: str) -> None:
        with contextlib.suppress(TransportRejected):  # reported by _print
            await self._print(text)

    async def _fault(self, text: str) -> None:
        self.exit_code = 1
        await self._streams.note(text)
