"""The way between the bot and its homeserver: each request may be late, refused, or cut before or after it is done."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from tests.crash.chance import Chance, Step
from tests.fakes.faults import Gate

REQUEST = re.compile(
    rb"(?:PUT|POST|GET) \S+/(send|redact|typing|receipt|upload|messages|relations|join|sync)\b"
)
STEPS = tuple(
    f"{kind}{when}"
    for kind in ("send", "redact", "messages", "relations", "join", "sync")
    for when in ("", " done")
)
LATE_S = 5.0
"""How long the homeserver may take for a request whose bot has died."""

ANSWER = "HTTP/1.1 {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}"
LIMITED = '{"errcode":"M_LIMIT_EXCEEDED","error":"Too Many Requests","retry_after_ms":300}'


@dataclass(frozen=True)
class Fault:
    """A request whose connection ends, before that with an answer if there is a *status*, after it was *applied* or not."""

    status: str = ""
    applied: bool = False
    body: str = ""

    @property
    def answer(self) -> bytes:
        return ANSWER.format(self.status, len(self.body), self.body).encode() if self.status else b""


BAD = "502 Bad Gateway"
FAULTS = (
    *(Fault(), Fault(applied=True), Fault(BAD), Fault(BAD, applied=True)),
    Fault("429 Too Many Requests", body=LIMITED),
)


class MatrixChance(Chance[Fault, bytes]):
    def cut(self, *, applied: bool) -> Fault:
        return Fault(applied=applied)

    def draw(self, kind: str) -> Fault | Gate | None:
        drawn = self._fate.random()
        if kind in ("send", "redact"):
            if drawn < 0.2:
                return Step(seconds=self._fate.uniform(0, self._late_s))
            return self._fate.choice(FAULTS) if drawn > 0.94 else None
        return self._fate.choice((Fault(), Fault(BAD))) if drawn > 0.98 else None


class Link:
    """It leads to a port of the homeserver's. A request goes on although the bot that made it has died."""

    def __init__(self, chance: MatrixChance, port: int) -> None:
        self.chance, self._to = chance, port
        self.writes, self.open = 0, set[Callable[[], None]]()

    async def serve(self, *, task_status: TaskStatus[int]) -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
            task_status.started(listener.extra(SocketAttribute.local_port))
            await listener.serve(self._carry)

    def cut(self) -> None:
        """End all connections."""
        for cut in [*self.open]:
            cut()

    async def _carry(self, bot: SocketStream) -> None:
        with suppress(OSError):
            async with bot, await anyio.connect_tcp("127.0.0.1", self._to) as server:
                await _Connection(self, bot, server).run()


class _Connection:
    """One connection of the bot, which makes one request after the other."""

    def __init__(self, link: Link, bot: SocketStream, server: SocketStream) -> None:
        self._link, self._bot, self._server = link, bot, server
        self._after: Fault | Gate | None = None
        self._answered = anyio.Event()

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._link.open.add(cut := tasks.cancel_scope.cancel)
            for pump in (self._requests, self._answers):
                tasks.start_soon(self._until_over, pump, cut)
        self._link.open.discard(cut)

    async def _until_over(self, pump: Callable[[], Awaitable[None]], over: Callable[[], None]) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await pump()
        over()

    async def _requests(self) -> None:
        async for chunk in self._bot:
            if request := REQUEST.match(chunk):
                kind, self._answered = request[1].decode(), anyio.Event()
                self._link.writes += kind in ("send", "redact")
                fault = self._link.chance.take(kind, chunk)
                if fault and fault.applied:
                    self._after = fault
                elif isinstance(fault, Step):
                    await fault.hold()
                elif isinstance(fault, Fault):
                    await self._end(fault)
                    return
            await self._server.send(chunk)
        with anyio.move_on_after(LATE_S):
            await self._answered.wait()

    async def _answers(self) -> None:
        async for chunk in self._server:
            fault, self._after = self._after, None
            if isinstance(fault, Fault):
                await self._end(fault)
                return
            if fault:
                await fault.hold()
            self._answered.set()
            with suppress(anyio.BrokenResourceError):  # the bot died; its request is carried out all the same
                await self._bot.send(chunk)

    async def _end(self, fault: Fault) -> None:
        if fault.answer:
            await self._bot.send(fault.answer)
