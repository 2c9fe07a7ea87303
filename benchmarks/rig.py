"""A whole bot on a real disk, with a model that answers at once and a transport that only counts.

What is measured is the core and nothing else: `open_core`, `PosixDisk`, every durable write on.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import anyio

from bot.agent.prompt.instructions import system_prompt
from bot.cli import COLLECT_AFTER
from bot.extensions.files.read import ListFiles, ReadFile
from bot.ports.model import Completion, Request, Usage
from bot.wiring.app import DISK_THREADS, utc_now
from bot.wiring.core import Core, open_core
from tests.one_model import OneModel
from tests.tool_context import make_toolbox
from tests.world import core_parts
from threads.background import background_tasks
from threads.model import (
    Author,
    Incoming,
    Message,
    OnEvent,
    Outcome,
    Outgoing,
    Sink,
    Text,
    TextDelta,
    ThreadId,
    TurnEvent,
    TurnLimits,
    TurnSettled,
)
from threads.store.disk import PosixDisk
from threads.store.disk_threads import DiskThreads
from transports.base.transport import Capabilities, Transport

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")

LIMITS = TurnLimits(idle_timeout_s=3600)


USAGE = Usage(1_000, 50)
"""Every provider counts tokens, so a conversation is not estimated from its beginning."""


class Instant(OneModel):
    """A model that answers at once. Subclasses say something else, later, or nothing."""

    name = "bench/instant"

    def __init__(self, answer: str = "All right, that is done.") -> None:
        self._answer = answer

    async def say(self, _: Request) -> str:
        return self._answer

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        text = await self.say(request)
        await on_event(TextDelta(text))
        return Completion(Message("assistant", (Text(text),), model=self.name), USAGE, "end")


class Room:
    """A transport in memory: it remembers outcomes that someone waits for, and keeps no post."""

    name = "room"
    capabilities = Capabilities(find=True)

    def __init__(self) -> None:
        self.settled = 0
        self._expected: dict[str, tuple[anyio.Event, list[Outcome]]] = {}

    async def serve(self, sink: Sink) -> None:
        """Nobody calls it: messages are handed to the orchestrator."""

    async def post(self, outgoing: Outgoing) -> str:
        return f"p-{outgoing.reply_to}"

    async def find(self, thread: ThreadId, key: str) -> str | None:  # noqa: ARG002 - nothing is kept
        return None

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:  # noqa: ARG002
        if isinstance(event, TurnSettled):
            self.settled += 1
            if (expected := self._expected.pop(message_id, None)) is not None:
                expected[1].append(event.outcome)
                expected[0].set()

    def expect(self, incoming: Incoming) -> Callable[[], Awaitable[Outcome]]:
        """Return what waits for the outcome of a message that is about to be sent."""
        arrived, outcomes = self._expected[incoming.id] = (anyio.Event(), list[Outcome]())

        async def outcome() -> Outcome:
            await arrived.wait()
            return outcomes[0]

        return outcome

    async def ask(self, core: Core, incoming: Incoming) -> Outcome:
        """Send a message and wait for its outcome."""
        outcome = self.expect(incoming)
        await core.orchestrator.receive(incoming)
        return await outcome()


def message(thread: int, n: int, text: str = "please have a look at the build") -> Incoming:
    """Return message *n* of a thread, each thread with its own person."""
    place = ThreadId("room", "W1", f"C{thread}", f"1700000000.{thread:06}")
    return Incoming(f"{thread}-{n}", place, Author(f"U{thread}", "ann"), text, "2026-11-21T10:00:00+00:00")


async def inline(function: Callable[[*Arguments], T], /, *args: *Arguments) -> T:
    """Do disk work right here: for preparing what will be measured."""
    return function(*args)


@asynccontextmanager
async def running(
    data: Path,
    room: Transport,
    model: OneModel,
    *,
    limits: TurnLimits = LIMITS,
) -> AsyncIterator[Core]:
    """Run a bot over *data* until the block ends, with the threads and the garbage collector of the product."""
    gc.set_threshold(*COLLECT_AFTER)
    offload, journal_offload = DiskThreads(DISK_THREADS), DiskThreads(1)
    toolbox = make_toolbox([ReadFile(offload), ListFiles(offload)])
    with closing(offload), closing(journal_offload):
        parts = core_parts(
            data,
            room,
            model,
            toolbox,
            disk=PosixDisk(),
            offload=offload,
            journal_offload=journal_offload,
            now=utc_now,
            agent={"system": system_prompt("threadfast")},
            limits=limits,
        )
        async with background_tasks() as tasks:
            yield await open_core(tasks, parts)
