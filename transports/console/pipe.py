"""The chat without a terminal: lines in, answers out, errors on standard error.

A line is sent when the one before is settled. What acts on a running answer, such as `/stop`, is sent at once, after
the message that is being answered; commands alone keep their order.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from threads.errors import StoreUnavailable, TransportRejected
from threads.model import Outgoing, Sink, ThreadId, TurnEvent, TurnSettled, Waiting
from transports.console import parse
from transports.console.streams import Streams
from transports.shared.live.activity import waiting_words

READ_AHEAD = 16
"""Lines that are read while one is being answered, to find what is sent at once."""

SUCCESS = frozenset({"answered", "merged", "stopped", "withdrawn"})


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """One line: what it asks for, None if it is too long. ``sent`` is set once it needs no more sending."""

    number: int
    action: parse.Action | None
    sent: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_message(self) -> bool:
        return bool(self.action and self.action.kind == "send" and self.action.text[:1] not in "/!")


class Pipe:
    """Serves standard input line by line. ``exit_code`` is 0 as long as every line succeeded."""

    def __init__(self, sender: parse.Sender, streams: Streams, commands: Mapping[str, str]) -> None:
        self.exit_code = 0
        self._sender, self._commands = sender, commands
        self._streams = streams
        self._events: dict[str, MemoryObjectSendStream[TurnSettled | Waiting]] = {}
        self._lines = deque[_Line]()
        """The lines that are read and not settled, but for what is sent at once."""
        self._thread = parse.FIRST_THREAD
        self._done = False

    async def serve(self, sink: Sink) -> None:
        """Return when the input ended, or nobody reads the answers any more, and every line is settled."""
        ahead, lines = anyio.create_memory_object_stream[_Line](READ_AHEAD)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_lines, ahead, sink)
            with lines:
                async for line in lines:
                    await self._take(line, sink)
                    line.sent.set()
                    self._lines.popleft()
                    if self._done:
                        tasks.cancel_scope.cancel()
                        break

    async def _read_lines(self, ahead: MemoryObjectSendStream[_Line], sink: Sink) -> None:
        """Read lines until the input ends; those that act on a running answer pass the others."""
        lines, number, thread = parse.Lines(), 0, self._thread
        with ahead:
            while data := await self._read():
                for raw in lines.feed(data):
                    number += 1
                    thread = await self._pass_on(raw, number, thread, ahead, sink)
            for raw in lines.end():
                await self._pass_on(raw, number + 1, thread, ahead, sink)

    async def _pass_on(
        self, raw: bytes | None, number: int, thread: str, ahead: MemoryObjectSendStream[_Line], sink: Sink
    ) -> str:
        """Send a line, or let it wait for its turn; return the thread of the next one."""
        text = (raw or b"").decode(errors="replace").removesuffix("\r")
        action = None if raw is None else parse.action(text, self._commands)
        if action is None and raw is not None:
            return thread
        asked = next((line for line in self._lines if line.is_message), None)
        if asked and action and action.kind == "send" and parse.acts_at_once(action.text):
            await asked.sent.wait()
            await self._say(action.text, number, thread, sink)
            return thread
        line = _Line(number, action)
        self._lines.append(line)
        await ahead.send(line)
        return action.text if action and action.kind == "switch" else thread

    async def post(self, outgoing: Outgoing) -> None:
        """Write an answer. Raises `TransportRejected` when standard output takes no more."""
        name = outgoing.thread.root
        heading = "" if name == self._thread else f"[{name}] "
        await self._print(heading + outgoing.text)

    def show(self, _: ThreadId, message_id: str, event: TurnEvent) -> None:
        if (events := self._events.get(message_id)) and isinstance(event, TurnSettled | Waiting):
            with contextlib.suppress(anyio.ClosedResourceError):  # settled already
                events.send_nowait(event)

    async def _take(self, line: _Line, sink: Sink) -> None:
        number, action = line.number, line.action
        if action is None:
            await self._fault(f"line {number} was not sent: it is longer than {parse.MAX_LINE:,} bytes")
            return
        match action.kind:
            case "send":
                await self._say(action.text, number, self._thread, sink, line.sent)
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

    async def _say(
        self, text: str, number: int, thread: str, sink: Sink, sent: anyio.Event | None = None
    ) -> None:
        """Send a message, and return when it is settled."""
        incoming = self._sender.message(text, thread)
        # Unbounded: it fills only as fast as a turn waits.
        told, events = anyio.create_memory_object_stream[TurnSettled | Waiting](math.inf)
        self._events[incoming.id] = told
        with told, events:
            try:
                await sink(incoming)
            except StoreUnavailable:
                await self._fault(f"line {number} was not sent: it could not be saved to disk")
                return
            finally:
                if sent:
                    sent.set()
            while isinstance(event := await events.receive(), Waiting):
                await self._streams.note(f"line {number} {waiting_words(event)}")
        del self._events[incoming.id]
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
