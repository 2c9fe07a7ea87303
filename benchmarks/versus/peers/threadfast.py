"""Ours, measured as the peers are: the whole core over its durable journal, without a platform."""

from __future__ import annotations

from collections.abc import Callable
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
from bot.ports.model import Request
from bot.wiring.core import Core
from threads.model import Incoming, Outgoing, ThreadId


class _Model(Instant):
    def __init__(self, step: str) -> None:
        super().__init__(ANSWER)
        self._slow_down = SlowDown(step)

    async def say(self, request: Request) -> str:
        await self._slow_down.think()
        return await super().say(request)


class _Platform(Room):
    """A room that reports posts and, as Slack and Discord do, still knows them after a restart."""

    def __init__(self, posted: tuple[str, ...], on_post: Callable[[str], None]) -> None:
        super().__init__()
        self._posted = set(posted)
        self._on_post = on_post

    async def post(self, outgoing: Outgoing) -> str:
        if outgoing.kind == "reply":
            self._on_post(outgoing.reply_to)
        return await super().post(outgoing)

    async def find(self, thread: ThreadId, key: str) -> str | None:  # noqa: ARG002 - one message a thread
        number = thread.root.rpartition(".")[2]
        known = message_id(int(number), 0)
        return f"p-{known}" if known in self._posted else None


def _incoming(thread: int, n: int) -> Incoming:
    return replace(message(thread, n, text(thread, n)), id=message_id(thread, n))


async def _converse(core: Core, room: Room, threads: range, messages: int) -> None:
    async def one(thread: int) -> None:
        for n in range(messages):
            assert await room.ask(core, _incoming(thread, n)) == "answered"

    async with anyio.create_task_group() as people:
        for thread in threads:
            people.start_soon(one, thread)


async def _accept(core: Core, threads: int) -> None:
    async def one(thread: int) -> None:
        await core.orchestrator.receive(_incoming(thread, 0))
        say("accepted", id=message_id(thread, 0))

    async with anyio.create_task_group() as people:
        for thread in range(threads):
            people.start_soon(one, thread)


async def main() -> None:
    task, fsyncs = Task.read(), Fsyncs()

    def on_post(reply_to: str) -> None:
        if task.step != "converse":
            say("answered", id=reply_to)

    room = _Platform(tuple(task.posted), on_post)
    async with running(Path(task.data), room, _Model(task.step)) as core:
        if task.step == "converse":
            await _converse(core, room, range(task.threads, task.threads + WARM_UP), 1)
            meter = Meter(fsyncs)
            await _converse(core, room, range(task.threads), task.messages)
            meter.say(version("threadfast"))
            return
        if task.step == "accept":
            await _accept(core, task.threads)
        say("started")
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main)
