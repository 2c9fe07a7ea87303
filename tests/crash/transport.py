"""The bot's side of `tests.crash.platform`: a `transports.base.transport.Transport` over its socket."""

from __future__ import annotations

import json
from collections.abc import Callable

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.crash.platform import MAX_FRAME, Frame
from threads.errors import (
    PostFailed,
    StoreUnavailable,
    TransportRateLimited,
    TransportRejected,
    TransportUnavailable,
)
from threads.model import Author, Incoming, Outgoing, Sink, ThreadId, TurnEvent, TurnSettled
from transports.base.transport import Capabilities

AGAIN_S = 0.2


class SocketTransport:
    """``owed`` says how many messages have no outcome yet; the platform is told with each acknowledgement."""

    name = "crash"
    state = "connected"
    trouble = ""
    silent_s: float | None = None

    def __init__(self, port: int, *, find: bool) -> None:
        self.capabilities = Capabilities(find=find)
        self.owed: Callable[[], int] = lambda: -1
        self.connected = anyio.Event()
        self._port = port
        self._stream: SocketStream
        self._sending = anyio.Lock()
        self._calls: list[tuple[anyio.Event, Frame]] = []
        self._settled = anyio.Event()

    async def serve(self, sink: Sink) -> None:
        """Return when the platform hangs up."""
        self._stream = await anyio.connect_tcp("127.0.0.1", self._port)
        buffered = BufferedByteReceiveStream(self._stream)
        async with self._stream, anyio.create_task_group() as tasks:
            self.connected.set()
            tasks.start_soon(self._report)
            while True:
                try:
                    frame = json.loads(await buffered.receive_until(b"\n", MAX_FRAME))
                except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                    break
                if frame["t"] == "message":
                    tasks.start_soon(self._take, frame, sink)
                else:
                    answered, answer = self._calls[frame["call"]]
                    answer.update(frame)
                    answered.set()
            tasks.cancel_scope.cancel()

    async def post(self, outgoing: Outgoing) -> str:
        return str(
            await self._call(
                "post",
                key=outgoing.key,
                thread=str(outgoing.thread),
                text=outgoing.text,
                reply_to=outgoing.reply_to,
                kind=outgoing.kind,
            )
        )

    async def find(self, thread: ThreadId, key: str) -> str | None:
        found = await self._call("find", key=key, thread=str(thread))
        return None if found is None else str(found)

    async def reconnected(self) -> None:
        """Return once it was connected; it never is again."""
        await self.connected.wait()

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        if isinstance(event, TurnSettled):
            self._settled.set()

    async def _take(self, frame: Frame, sink: Sink) -> None:
        thread = ThreadId.parse(frame["thread"])
        incoming = Incoming(frame["id"], thread, Author(frame["author"]), frame["text"])
        try:
            await sink(incoming)
        except StoreUnavailable:
            return
        await self._send({"t": "ack", "id": incoming.id, "owed": self.owed()})

    async def _report(self) -> None:
        """Tell the platform how much is owed, at the start and whenever that may have grown less.

        A message has its outcome on disk a moment after that is shown, when nobody waits for it any more.
        """
        while True:
            self._settled = anyio.Event()
            await self._send({"t": "owed", "owed": self.owed()})
            with anyio.move_on_after(AGAIN_S):
                await self._settled.wait()

    async def _call(self, asked: str, /, **fields: str) -> object:
        """Ask, and return the id in the answer. Raises `PostFailed` for a refusal."""
        await self.connected.wait()
        call: tuple[anyio.Event, Frame] = (anyio.Event(), {})
        self._calls.append(call)
        await self._send({"t": asked, "call": len(self._calls) - 1, **fields})
        await call[0].wait()
        match call[1]:
            case {"error": "limited", "retry_after": float(seconds)}:
                raise TransportRateLimited("slow down", retry_after=seconds)
            case {"error": "rejected"}:
                raise TransportRejected("not here")
            case {"error": "before" | "after" as when}:
                raise TransportUnavailable("503", maybe_posted=when == "after")
            case {"id": found}:
                return found
            case other:
                raise PostFailed(f"odd answer {other}")

    async def _send(self, frame: Frame) -> None:
        async with self._sending:
            await self._stream.send(json.dumps(frame).encode() + b"\n")
