"""What a streamed delta costs, beside the raw SDK in the same run, and how long a first call stops the event loop.

200 streams, an event each every 30 ms, from a server in a process of its own; each reader runs in its own, in turns.
Counted is the CPU between the moment when all streams flow and the moment when the first of them ends.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from statistics import median
from typing import Any

import anyio

from benchmarks.child import ask, serving
from benchmarks.figures import Conditions, Figure
from bot.config.settings import StreamTimeouts
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.adapters.sdk import SdkClient, SdkModel
from bot.ports.model import Request
from tests.fakes import anthropic, openai
from threads.model import Message, Text, TurnEvent

STREAMS = 200
PACE_S = 0.03
ADAPTERS = {
    "anthropic": ("anthropic.messages", "AnthropicModel"),
    "responses": ("openai.responses", "OpenAIResponsesModel"),
    "chat": ("openai.chat", "OpenAIChatModel"),
}
RATIO = 1.3
STALL_MS = 50
REQUEST = Request("Be brief.", (Message("user", (Text("Count."),)),))


def measure(conditions: Conditions) -> Iterator[Figure]:
    rounds, deltas = (1, 100) if conditions.quick else (3, 150)
    for wire in ADAPTERS:
        with serving("streaming", wire, deltas) as port:
            _child("raw", wire, port, 20)  # fills the caches
            raw, ours = [], []
            for _ in range(rounds):
                raw.append(_child("raw", wire, port, STREAMS)["us"])
                ours.append(_child("ours", wire, port, STREAMS)["us"])
            stalls = [_child("stall", wire, port, 1) for _ in range(rounds)]
        note = f"median of {rounds}; {STREAMS} streams, {1 / PACE_S:.0f} events/s each"
        yield Figure(f"CPU per delta, {wire}", median(ours), "us", note=note)
        yield Figure("  raw SDK", median(raw), "us", note=f"{min(raw):.0f} to {max(raw):.0f}")
        yield Figure("  to raw SDK", median(ours) / median(raw), "x", at_most=RATIO)
        stopped = [stall["ms"] for stall in stalls]
        first = median(stall["first_ms"] for stall in stalls)
        note = f"worst {max(stopped):.0f} ms; the call took {first:,.0f} ms"
        what = "  longest stop of the event loop by a first call"
        yield Figure(what, median(stopped), "ms", at_most=STALL_MS, note=note)


def _child(what: str, wire: str, port: int, streams: int) -> dict[str, float]:
    return ask("streaming", what, wire, port, streams)


def _answer(wire: str) -> tuple[bytes, bytes, bytes]:
    """Return what comes before the deltas, a delta, and what comes after, as the provider writes them."""
    text = anthropic.Text("word ", 1)
    if wire == "anthropic":
        steps, before = anthropic.answer(text).steps, 3
    elif wire == "chat":
        steps, before = openai.chat_answer(text).steps, 1
    else:
        steps, before = openai.response_answer(text).steps, 3
    whole = [step for step in steps if isinstance(step, bytes)]
    return b"".join(whole[:before]), whole[before], b"".join(whole[before + 1 :])


async def _serve(wire: str, deltas: int) -> None:
    before, delta, after = map(_chunk, _answer(wire))
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await reader.readuntil(b"\r\n\r\n")
                length = asked.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(head + before)
                loop = asyncio.get_running_loop()
                began = loop.time()
                for number in range(deltas):
                    if writer.is_closing():
                        return
                    writer.write(delta)
                    await asyncio.sleep(began + (number + 1) * PACE_S - loop.time())
                writer.write(after + b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(stream, "127.0.0.1", 0, backlog=2 * STREAMS)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _model(wire: str, port: int, http: SharedHttp) -> SdkModel:
    """Import one adapter alone: the SDKs must stay out until the first call."""
    file, name = ADAPTERS[wire]
    kind: type[SdkModel] = getattr(importlib.import_module(f"bot.extensions.{file}"), name)
    base_url = f"http://127.0.0.1:{port}" + ("" if wire == "anthropic" else "/v1")
    return kind("p", "m", api_key=lambda: "k", base_url=base_url, http=http, timeouts=StreamTimeouts())


@dataclass
class _Gauge:
    """CPU and deltas while all of ``streams`` flow."""

    streams: int
    flowing: int = 0
    deltas: int = 0
    began: tuple[float, int] | None = None
    ended: tuple[float, int] | None = None

    def start(self) -> None:
        self.flowing += 1
        if self.flowing == self.streams:
            self.began = time.process_time(), self.deltas

    def stop(self) -> None:
        self.ended = self.ended or (time.process_time(), self.deltas)

    @property
    def per_delta(self) -> float:
        """Seconds of CPU."""
        assert self.began is not None, "the streams did not all flow at once"
        assert self.ended is not None
        return (self.ended[0] - self.began[0]) / (self.ended[1] - self.began[1])


Reads = Callable[[_Gauge], Coroutine[Any, Any, None]]


async def _paced(what: str, wire: str, port: int, streams: int) -> dict[str, float]:
    http, gauge = SharedHttp(), _Gauge(streams)
    model = _model(wire, port, http)
    one = _ours(model) if what == "ours" else _raw(wire, model)
    async with anyio.create_task_group() as tasks:
        for _ in range(streams):
            tasks.start_soon(one, gauge)
    await http.aclose()
    return {"us": gauge.per_delta * 1e6}


def _ours(model: SdkModel) -> Reads:
    async def one(gauge: _Gauge) -> None:
        heard = False

        async def listen(_: TurnEvent) -> None:
            nonlocal heard
            if not heard:
                heard = True
                gauge.start()
            gauge.deltas += 1

        await model.complete(REQUEST, listen)
        gauge.stop()

    return one


def _raw(wire: str, model: SdkModel) -> Reads:
    """Read with nothing but the SDK, as its manual says."""

    async def opened() -> AbstractAsyncContextManager[AsyncIterable[object]]:
        client, text = SdkClient._build(model, "k"), "Count."
        stream: AbstractAsyncContextManager[AsyncIterable[object]]
        if wire == "responses":
            stream = await client.responses.create(model="m", input=text, stream=True)
        else:
            api = client.messages if wire == "anthropic" else client.chat.completions
            messages = [{"role": "user", "content": text}]
            stream = await api.create(model="m", max_tokens=99, messages=messages, stream=True)
        return stream

    async def one(gauge: _Gauge) -> None:
        heard = False
        async with await opened() as stream:
            async for _ in stream:
                if not heard:
                    heard = True
                    gauge.start()
                gauge.deltas += 1
        gauge.stop()

    return one


async def _stall(wire: str, port: int) -> dict[str, float]:
    """Call once while a probe looks how late the event loop wakes it."""
    http, late = SharedHttp(), 0.0
    model = _model(wire, port, http)

    async def probe() -> None:
        nonlocal late
        while True:
            before = time.perf_counter()
            await anyio.sleep(0.001)
            late = max(late, time.perf_counter() - before - 0.001)

    async def heard(_: TurnEvent) -> None:
        tasks.cancel_scope.cancel()

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe)
        await anyio.sleep(0.05)
        late = 0.0
        await model.complete(REQUEST, heard)
    return {"ms": late * 1e3, "first_ms": (time.perf_counter() - began) * 1e3}


def main(what: str, wire: str, *numbers: str) -> None:
    match what:
        case "serve":
            asyncio.run(_serve(wire, int(numbers[0])))
        case "stall":
            print(json.dumps(anyio.run(_stall, wire, int(numbers[0]))))
        case _:
            port, streams = map(int, numbers)
            print(json.dumps(anyio.run(_paced, what, wire, port, streams)))


if __name__ == "__main__":
    main(*sys.argv[1:])
