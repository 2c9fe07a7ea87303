"""What an event from Slack costs until it is acknowledged, beside the SDK's raw socket client in the same run.

A fake Slack in a process of its own sends messages over a real web socket, as fast as they are acknowledged (at most
500 are on their way) or at an even pace; each reader runs in its own process, in turns:

raw       slack_sdk's SocketModeClient, which only acknowledges
ours      our `SocketModeLink`, with a take that does nothing
journal   our `SocketModeLink`, Slack's payload read (`parse_event`), the message durable in a journal on disk

Counted is the CPU between the first event and the acknowledgement of the last.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread

from benchmarks.child import ask, import_cost, import_figures, serving
from benchmarks.figures import Conditions, Figure
from threads.background import background_tasks

AT_ONCE = 500
PACE_PER_S = 1000
RATIO = 3.0
IMPORTS = {
    "bare": "import aiohttp",
    "SDK": "import slack_sdk.socket_mode.aiohttp",
    "link": "import transports.slack.api.socket_mode",
    "ours": "import transports.slack.client",
}


def measure(conditions: Conditions) -> Iterator[Figure]:
    rounds, events = (1, 3_000) if conditions.quick else (5, 8_000)
    yield from _received("as fast as it can", rounds, events, 0, conditions.disk)
    yield from _received(f"{PACE_PER_S} a second", rounds, 2_000, PACE_PER_S, conditions.disk)
    yield from import_figures("slack_events", IMPORTS, 1 if conditions.quick else 5)


def _received(how: str, rounds: int, events: int, pace: int, disk: Path) -> Iterator[Figure]:
    found: dict[str, list[dict[str, float]]] = {"raw": [], "ours": [], "journal": []}
    with serving("slack_events", events, pace) as port, TemporaryDirectory(dir=disk) as folder:
        for number in range(rounds + 1):
            for reader, figures in found.items():
                figure = ask("slack_events", "read", reader, port, events, f"{folder}/{number}{reader}")
                if number:  # the first round only fills the caches
                    figures.append(figure)
    us = {reader: median(figure["us"] for figure in figures) for reader, figures in found.items()}
    per_s = {reader: median(figure["per_s"] for figure in figures) for reader, figures in found.items()}
    yield Figure(f"CPU per event, {how}", us["ours"], "us", note=f"median of {rounds}; {events} events")
    yield Figure("  raw SDK", us["raw"], "us")
    yield Figure("  to raw SDK", us["ours"] / us["raw"], "x", at_most=RATIO)
    yield Figure("  read and durable", us["journal"], "us", note=f"{us['journal'] / us['raw']:.1f} x")
    if not pace:
        note = f"raw {per_s['raw']:,.0f}, durable {per_s['journal']:,.0f}"
        yield Figure("  acknowledged", per_s["ours"], "/s", note=note)
        yield Figure("  raw SDK to ours", per_s["raw"] / per_s["ours"], "x", at_most=RATIO)


async def _serve(events: int, pace: int) -> None:
    """Send so many events to every reader that connects, one after the other."""
    from tests.fakes.slack import FakeSlack  # noqa: PLC0415  a reader does without

    async with FakeSlack(ack_budget=600) as slack:
        slack.sockets.remember = False
        print(slack.url.rpartition(":")[2], flush=True)
        while True:
            await slack.until(lambda: slack.sockets.links, limit=600)
            slack.acked, began = 0, time.perf_counter()
            for number in range(events):
                if pace and (ahead := began + number / pace - time.perf_counter()) > 0:
                    await anyio.sleep(ahead)
                if number - slack.acked >= AT_ONCE:
                    await slack.until(lambda sent=number: sent - slack.acked < AT_ONCE // 2)
                slack.event(_message(number))
            await slack.until(lambda: not slack.sockets.links, limit=600)


def _message(number: int) -> dict[str, object]:
    ts = f"1700000000.{number:06}"
    words = {"type": "text", "text": "please have a look at the build"}
    section = {"type": "rich_text_section", "elements": [words]}
    return {
        "type": "message", "channel": f"D{number % 50}", "channel_type": "im", "user": "U1", "team": "T1",
        "ts": ts, "event_ts": ts, "text": words["text"], "client_msg_id": f"c-{ts}",
        "blocks": [{"type": "rich_text", "block_id": "b1", "elements": [section]}],
    }  # fmt: skip


@dataclass
class _Gauge:
    """CPU and time from the first event to the last of ``events``."""

    events: int
    done: anyio.Event
    count: int = 0
    began: tuple[float, float] = (0.0, 0.0)
    ended: tuple[float, float] = (0.0, 0.0)

    def saw(self) -> None:
        if not self.count:
            self.began = time.process_time(), time.perf_counter()
        self.count += 1

    def acked(self) -> None:
        if self.count == self.events:
            self.ended = time.process_time(), time.perf_counter()
            self.done.set()


async def _read(reader: str, port: int, events: int, data: Path) -> dict[str, float]:
    gauge = _Gauge(events, anyio.Event())
    async with READERS[reader](f"http://127.0.0.1:{port}/api/", gauge, data):
        await gauge.done.wait()
    cpu, wall = (end - begin for end, begin in zip(gauge.ended, gauge.began, strict=True))
    return {"us": cpu / events * 1e6, "per_s": events / wall}


@asynccontextmanager
async def _raw(base_url: str, gauge: _Gauge, _: Path) -> AsyncIterator[None]:
    from slack_sdk.socket_mode.aiohttp import SocketModeClient  # noqa: PLC0415
    from slack_sdk.socket_mode.response import SocketModeResponse  # noqa: PLC0415
    from slack_sdk.web.async_client import AsyncWebClient  # noqa: PLC0415

    async def acknowledge(client, request) -> None:
        gauge.saw()
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))
        gauge.acked()

    client = SocketModeClient("xapp-fake-token", web_client=AsyncWebClient(base_url=base_url))
    client.socket_mode_request_listeners.append(acknowledge)
    await client.connect()
    try:
        yield
    finally:
        await client.close()


@asynccontextmanager
async def _ours(base_url: str, gauge: _Gauge, _: Path) -> AsyncIterator[None]:
    async def take(_kind: str, _body: Mapping[str, object]) -> None:
        gauge.saw()

    async with _linked(base_url, gauge, take):
        yield


@asynccontextmanager
async def _journal(base_url: str, gauge: _Gauge, data: Path) -> AsyncIterator[None]:
    from bot.wiring.app import utc_now  # noqa: PLC0415
    from threads.journal.journal import FileJournal  # noqa: PLC0415
    from threads.journal.ports import NullTaker  # noqa: PLC0415
    from threads.model import Incoming  # noqa: PLC0415
    from threads.store.disk import PosixDisk  # noqa: PLC0415
    from transports.slack.events.parse_event import parse_event  # noqa: PLC0415
    from transports.slack.events.parse_message import Me  # noqa: PLC0415

    data.mkdir()
    journal = FileJournal(PosixDisk(), data / "journal.jsonl", offload=anyio.to_thread.run_sync, now=utc_now)
    journal.open()
    me = Me("T1", "UBOT", "BBOT", "bot")

    async def take(_kind, body) -> None:
        gauge.saw()
        [incoming] = parse_event(body, me).inbound
        assert isinstance(incoming, Incoming)
        await journal.receive(incoming)

    async with background_tasks() as tasks:
        tasks.start_soon(journal.run, NullTaker())
        async with _linked(base_url, gauge, take):
            yield


@asynccontextmanager
async def _linked(base_url: str, gauge: _Gauge, take: Callable) -> AsyncIterator[None]:
    """Run a `SocketModeLink`; an event counts when its acknowledgement was written to the socket."""
    from slack_sdk.web.async_client import AsyncWebClient  # noqa: PLC0415

    from transports.slack.api import socket_mode, websocket  # noqa: PLC0415

    class Counted(websocket.Socket):
        async def send_message(self, message: str) -> None:
            await super().send_message(message)
            gauge.acked()

    socket_mode.Socket = Counted
    client = AsyncWebClient("xoxb-fake-token", base_url=base_url)
    async with background_tasks() as tasks:
        tasks.start_soon(
            socket_mode.SocketModeLink(app_token="xapp-fake-token", client=client, take=take).run,
            lambda: None,
        )
        yield


READERS = {"raw": _raw, "ours": _ours, "journal": _journal}


def main(what: str, *words: str) -> None:
    match what:
        case "serve":
            anyio.run(_serve, *map(int, words))
        case "read":
            reader, port, events, data = words
            print(json.dumps(anyio.run(_read, reader, int(port), int(events), Path(data))))
        case _:
            print(json.dumps(import_cost(*words)))


if __name__ == "__main__":
    main(*sys.argv[1:])
