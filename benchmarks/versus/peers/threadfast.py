"""Ours, measured as the peers are.

With a model inside the process it is the core over its durable journal, as in the other benchmarks. With a model over
HTTP it is the whole bot as `threadfast run` wires it: budgets, retries, its usual tools, its HTTP client.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import anyio

from benchmarks.rig import Instant, Room, message, running
from benchmarks.versus.peers.harness import (
    ANSWER,
    WARM_UP,
    Fsyncs,
    Meter,
    SlowDown,
    Task,
    message_id,
    say,
    text,
)
from bot.config.settings import Settings
from bot.ports.model import Request
from bot.wiring.app import serve
from threads.model import Incoming, Outgoing, Sink, ThreadId
from transports.base.transport import LinkState


class _Model(Instant):
    def __init__(self, step: str) -> None:
        super().__init__(ANSWER)
        self._slow_down = SlowDown(step)

    async def say(self, request: Request) -> str:
        await self._slow_down.think()
        return await super().say(request)


class _Platform(Room):
    """A room that reports posts and, as Slack and Discord do, still knows them after a restart."""

    state: LinkState = "connected"
    trouble = ""
    silent_s: float | None = None

    def __init__(self, task: Task, fsyncs: Fsyncs) -> None:
        super().__init__()
        self._task, self._fsyncs = task, fsyncs
        self._posted = set(task.posted)

    async def serve(self, sink: Sink) -> None:
        """Do the task: messages go to *sink*."""
        task = self._task
        if task.step == "converse":
            await self._converse(sink, range(task.threads, task.threads + WARM_UP), 1)
            meter = Meter(self._fsyncs)
            await self._converse(sink, range(task.threads), task.messages)
            meter.say(version("threadfast"))
            return
        if task.step == "accept":
            await self._accept(sink, task.threads)
        say("started")
        await anyio.sleep_forever()

    async def _converse(self, sink: Sink, threads: range, messages: int) -> None:
        async def one(thread: int) -> None:
            for n in range(messages):
                incoming = _incoming(thread, n)
                outcome = self.expect(incoming)
                await sink(incoming)
                assert await outcome() == "answered"

        async with anyio.create_task_group() as people:
            for thread in threads:
                people.start_soon(one, thread)

    async def _accept(self, sink: Sink, threads: int) -> None:
        async def one(thread: int) -> None:
            await sink(_incoming(thread, 0))
            say("accepted", id=message_id(thread, 0))

        async with anyio.create_task_group() as people:
            for thread in range(threads):
                people.start_soon(one, thread)

    def link(self, thread: ThreadId) -> str:  # noqa: ARG002 - a room has no address
        return ""

    async def post(self, outgoing: Outgoing) -> str:
        if self._task.step != "converse" and outgoing.kind == "reply":
            say("answered", id=outgoing.reply_to)
        return await super().post(outgoing)

    async def find(self, thread: ThreadId, key: str) -> str | None:  # noqa: ARG002 - one message a thread
        number = thread.root.rpartition(".")[2]
        known = message_id(int(number), 0)
        return f"p-{known}" if known in self._posted else None


def _incoming(thread: int, n: int) -> Incoming:
    return replace(message(thread, n, text(thread, n)), id=message_id(thread, n))


def _settings(task: Task) -> Settings:
    provider = {"base_url": task.model_url, "free": True}
    return Settings.model_validate({"data": Path(task.data), "providers": {"loopback": provider}})


async def main() -> None:
    task, fsyncs = Task.read(), Fsyncs()
    platform = _Platform(task, fsyncs)
    if task.model_url:
        await serve(_settings(task), {}, model="loopback/instant", make_transports=lambda _: [platform])
        return
    async with running(Path(task.data), platform, _Model(task.step)) as core:
        await platform.serve(core.orchestrator.receive)


if __name__ == "__main__":
    anyio.run(main)
