"""The bot process of the crash run: the real core over the real disk, an echo for a model, the transport of a stage.

    python -m tests.crash.STAGE.child --data D --port P --seed S [--stops]

With ``--stops`` a SIGTERM is a request to stop, as for the real command; without, it is one more way to be killed.
It prints STARTING when its imports are done and READY when it serves. ``--die-at N`` makes its N-th disk operation
its last, ``--waits`` scales the waits that are there for a real platform's slowness, ``--compact`` the journal's size.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import anyio
import anyio.to_thread

from bot.extensions.files.read import ListFiles
from bot.extensions.postgres.session import DatabaseSession, Row
from bot.extensions.postgres.store import PostgresStore
from bot.extensions.postgres.worker import WorkerLost
from bot.guards.policy import Policy
from bot.observe.live_parts import LiveParts
from bot.observe.shutdown import Stop
from bot.ports.errors import BadRequest, ModelUnavailable
from bot.ports.model import Completion, Request, Usage
from bot.tools.approvals import Approvals, ApprovalsFile
from bot.wiring.app import DISK_THREADS, utc_now
from bot.wiring.core import open_core
from tests.one_model import OneModel
from tests.tool_context import make_toolbox
from tests.world import core_parts, state_file
from threads import delivery
from threads.background import background_tasks
from threads.journal import journal
from threads.model import Message, OnEvent, Text, TextDelta, ToolCall, TurnLimits
from threads.store.data_folder import FolderTaken, lock_data_folder
from threads.store.disk import Disk, File, PosixDisk
from threads.store.disk_threads import DiskThreads
from transports.base.transport import Transport
from transports.shared.delivery import outbox

TOKEN = re.compile(r"t\d+m\d+")

STRANGER, DISCORD_STRANGER = "USTRANGER", "700000000000000298"
"""Who are not served; Discord knows people by numbers."""

DRAINS_S = (0.1, 1.0, 5.0)
"""How long running turns may have when a stop is asked for."""

EXPIRES_S = 3.0
"""How long a question may stand: what waits for nobody has to end within the time that a run allows."""

Make = Callable[[argparse.Namespace, Disk, PostgresStore | None], Transport]


class Paced(OneModel):
    """A model that takes its time, unless it is ``brisk``."""

    brisk = False


class Echo(Paced):
    """A model that names the messages it answers. What it does is drawn from the newest message's id."""

    name = "echo/one"

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        tokens, steps = unanswered(request)
        drawn = crc32((tokens[-1] if tokens else "").encode())
        await anyio.sleep(crc32(b"%d %d" % (drawn, steps)) % 31 / 1000)
        if steps < (0, 0, 0, 1, 1, 2)[drawn % 6]:
            call = ToolCall(f"c-{tokens[-1]}-{steps}", "list_files", {"path": "." if steps == 0 else "x"})
            return Completion(Message("assistant", (call,), model=self.name), Usage(1, 1), "tool_calls")
        text = f"re {' '.join(tokens)}"
        await on_event(TextDelta(text))
        match drawn // 6 % 60:
            case 0:
                raise BadRequest("canary-of-a-provider")
            case 1:
                raise ModelUnavailable("503")
            case 2:
                raise RuntimeError("canary-of-a-bug")
            case 3:
                await anyio.sleep(60)
        return Completion(Message("assistant", (Text(text),), model=self.name), Usage(1, 1), "end")


def unanswered(request: Request) -> tuple[list[str], int]:
    """Return the ids in what people said to the bot since the last answer, and how many steps were made on them."""
    tokens: list[str] = []
    steps = 0
    for message in request.messages:
        if message.role == "user":
            tokens += [token for words in said_in(message) for token in TOKEN.findall(words)]
        elif message.calls:
            steps += 1
        else:
            tokens, steps = [], 0
    return tokens, steps


def said_in(message: Message) -> list[str]:
    """Return the lines of a person's message without those that it quotes, which were not said to the bot."""
    lines = (line for block in message.blocks if isinstance(block, Text) for line in block.text.splitlines())
    return [line for line in lines if not line.startswith("> ")]


class DyingDisk(PosixDisk):
    """The real disk, and a process that dies at one of its operations: before it, right after, or half into a write."""

    def __init__(self, die_at: int, fate: random.Random) -> None:
        self._left = die_at
        self._when = fate.choice(("before", "half", "half", "after"))
        self._counting = threading.Lock()

    def step(self, when: str) -> bool:
        """Die, if this is the operation and the moment; True says to write only half, and die then."""
        with self._counting:
            self._left -= when == "before"
            if self._left == 0 and self._when == when:
                die()
            return self._left <= 0 and self._when == "half"

    def create(self, path: Path) -> File:
        self.step("before")
        file = super().create(path)
        self.step("after")
        return DyingFile(file, self)

    def append(self, path: Path) -> File:
        return DyingFile(super().append(path), self)

    def rename(self, source: Path, target: Path) -> None:
        self.step("before")
        super().rename(source, target)
        self.step("after")

    def mkdir(self, *paths: Path) -> None:
        self.step("before")
        super().mkdir(*paths)
        self.step("after")

    def unlink(self, path: Path) -> None:
        self.step("before")
        super().unlink(path)
        self.step("after")


class DyingFile:
    def __init__(self, file: File, disk: DyingDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: bytes | memoryview) -> int:
        if self._disk.step("before"):
            self._file.write(data[: len(data) // 2])
            die()
        written = self._file.write(data)
        self._disk.step("after")
        return written

    def fsync(self) -> None:
        self._disk.step("before")
        self._file.fsync()
        self._disk.step("after")

    def close(self) -> None:
        self._file.close()


def dying_session(die_at: int, fate: random.Random) -> Callable[..., Awaitable[list[Row]]]:
    """Return what runs statements until the one numbered *die_at*: the process dies before it, or once it is committed."""
    send, before, left = DatabaseSession.try_once, fate.random() < 0.5, count(die_at, -1)

    async def run(session: DatabaseSession, statement: str, parameters: Sequence[object]) -> list[Row]:
        last = next(left) == 1
        if last and before:
            die()
        rows = await send(session, statement, parameters)
        if last:
            die()
        return rows

    return run


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def run(args: argparse.Namespace, make: Make, model: Paced, base: TurnLimits) -> None:
    stop = Stop(random.Random(f"{args.seed} drain").choice(DRAINS_S))
    work = partial(serve, args, make, model, base, stop)
    await (stop.run(work) if args.stops else work())


def _forgetting(args: argparse.Namespace, *parts: object) -> AbstractAsyncContextManager[Any]:
    if not args.forgets:
        return nullcontext()
    from tests.crash.retention import forgetting  # noqa: PLC0415 - it opens an extension, which may be missing

    return forgetting(args, *parts)


async def serve(args: argparse.Namespace, make: Make, model: Paced, base: TurnLimits, stop: Stop) -> None:
    fate = random.Random(args.seed)
    disk = DyingDisk(args.die_at, fate) if args.die_at and not args.store else PosixDisk()
    store = PostgresStore(args.store, args.data, name="w", version="1", now=utc_now) if args.store else None
    transport = make(args, disk, store)
    approvals = Approvals(
        Policy({"list_files": "ask"} if args.asks else {}),
        state_file(args.data / "approvals.json", ApprovalsFile(), disk),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        is_admin=lambda _: False,
        note=unnoted,
        mask=str,
        expires_s=EXPIRES_S,
    )
    tools = [ListFiles(anyio.to_thread.run_sync)]
    toolbox = make_toolbox(tools, permits=approvals)
    limits = replace(
        base,
        idle_timeout_s=fate.choice((0.05, 0.5, 600)),
        busy=fate.choice(("steer", "steer", "queue")),
    )

    offload, journal_offload = DiskThreads(DISK_THREADS), DiskThreads(1)
    with closing(offload), closing(journal_offload), lock_data_folder(args.data):
        async with (
            _forgetting(args, disk, offload, journal_offload) as extensions,
            background_tasks() as tasks,
        ):
            parts = core_parts(
                args.data,
                transport,
                model,
                toolbox,
                disk=disk,
                offload=offload,
                journal_offload=journal_offload,
                now=utc_now,
                agent={"system": "You echo."},
                limits=limits,
                allowed=lambda event: event.author.id not in (STRANGER, DISCORD_STRANGER),
                permissions=approvals,
                **({"store": store} if store else {}),
                **(extensions.parts if extensions else {}),
            )
            core = await open_core(tasks, parts)
            receive = core.orchestrator.receive
            tasks.start_soon(announce, transport)
            inside = core.registry, core.slots, core.journal
            live = LiveParts(args.data, model.name, [transport], (), *inside, list, list, {}, list)
            async with stop.draining(live, lambda _: None):
                await transport.serve(extensions.receiving(receive) if extensions else receive)
    if store:
        await store.leave()


async def unnoted(*_: object) -> None:
    """Keep no audit."""


async def announce(transport: Transport) -> None:
    await transport.reconnected()
    print("READY", flush=True)


def main(
    make: Make,
    model: Paced = Echo(),
    limits: TurnLimits = TurnLimits(running_turns=12, turn_timeout_s=1.5),
) -> None:
    """Run the bot over the transport that *make* gives, with this *model*."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--asks", action="store_true", help="a tool call needs a person's leave")
    parser.add_argument("--brisk", action="store_true", help="short, quick answers")
    parser.add_argument("--stops", action="store_true")
    parser.add_argument("--broken", default="", help="a fault to put into the bot")
    parser.add_argument("--forgets", type=float, default=0, help="what is quiet so many seconds")
    parser.add_argument("--die-at", type=int, default=0)
    parser.add_argument("--store", default="", help="the address of a PostgreSQL, instead of files")
    parser.add_argument("--waits", type=float, default=1.0)
    parser.add_argument("--compact", type=int, default=journal.COMPACT_ABOVE)
    args = parser.parse_args()
    logging.basicConfig(level="WARNING", format="%(levelname)s %(message)s")
    delivery.LATE_POST_S *= args.waits
    outbox.PAUSES_S = tuple(pause * args.waits for pause in outbox.PAUSES_S)
    journal.COMPACT_ABOVE = args.compact
    if args.stops:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    model.brisk = args.brisk
    print("STARTING", flush=True)
    if args.store and args.die_at:
        DatabaseSession.try_once = dying_session(args.die_at, random.Random(args.seed))
    try:
        anyio.run(run, args, make, model, limits)
    except FolderTaken as error:
        print(error, file=sys.stderr)
        sys.exit(78)
    except BaseExceptionGroup as group:
        if group.split((WorkerLost, ConnectionError))[1]:
            raise
        sys.exit(os.EX_TEMPFAIL)
