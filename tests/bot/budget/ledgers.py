"""A ledger over a model disk in a test, and what a crash makes of that disk."""

import errno
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.budget.budgets import Call, Key
from bot.budget.ledger import Ledger
from tests.explorer.model import FOLDER, ModelDisk, Op, Write, apply_bytes, apply_name, folder_of, reachable
from threads.background import background_tasks
from threads.store.disk import Disk

FOLDER_PATH = Path("/d/usage")
CALL = Call("t1", "ann", "m1", "fake/one", "2026-11-21")
THREAD: Key = ("thread", "t1")


async def inline(function: Callable[..., object], *args: object) -> object:
    return function(*args)


class Time:
    """A clock that a test sets."""

    def __init__(self, now: str = "2026-11-21T10:00:00") -> None:
        self.at = datetime.fromisoformat(now).replace(tzinfo=UTC)

    def __call__(self) -> datetime:
        self.at += timedelta(milliseconds=1)
        return self.at

    def set(self, now: str) -> None:
        self.at = datetime.fromisoformat(now).replace(tzinfo=UTC)


def empty_disk() -> ModelDisk:
    return ModelDisk.holding({"/d": None})


def disk_of(**files: bytes) -> ModelDisk:
    """Return a disk with a ledger's files, named without their ending."""
    paths = {str(FOLDER_PATH / f"{name}.jsonl"): data for name, data in files.items()}
    return ModelDisk.holding({"/d": None, str(FOLDER_PATH): None, **paths})


def failing(kind: type[Op] = object, number: int = errno.ENOSPC) -> Callable[[Op], Op]:
    """Return faults for a disk on which operations of a kind fail."""

    def faults(op: Op) -> Op:
        if isinstance(op, kind):
            raise OSError(number, os.strerror(number))
        return op

    return faults


def ledger_on(disk: Disk, time: Callable[[], datetime], offload: object = inline) -> Ledger:
    def names(folder: Path) -> list[str]:
        assert isinstance(disk, ModelDisk)
        return [path.rpartition("/")[2] for path in disk.names if folder_of(path) == str(folder)]

    return Ledger(disk, FOLDER_PATH, offload=offload, now=time, names=names)


def reopened(disk: Disk, time: Callable[[], datetime], offload: object = inline) -> Ledger:
    """Return the ledger as a start would read it."""
    ledger = ledger_on(disk, time, offload)
    ledger.open()
    return ledger


@asynccontextmanager
async def opened(disk: ModelDisk, time: Callable[[], datetime]) -> AsyncIterator[Ledger]:
    """Open the ledger and write until the block ends, as a process would that is then killed."""
    ledger = reopened(disk, time)
    async with background_tasks() as tasks:
        tasks.start_soon(ledger.run)
        yield ledger


def files(disk: ModelDisk) -> dict[str, bytes]:
    return {
        path.rpartition("/")[2]: disk.files[node].now for path, node in disk.names.items() if node != FOLDER
    }


def power_cut(disk: ModelDisk, rng: random.Random) -> ModelDisk:
    """Return what one power cut leaves: of what was not synced each part is kept, gone or torn."""
    names = dict(disk.durable_names)
    for op in disk.pending_names:
        if rng.random() < 0.5:
            apply_name(names, op)
    image: dict[str, bytes | None] = {}
    for path, node in reachable(names):
        image[path] = None if node == FOLDER else _survives(disk, node, rng)
    return ModelDisk.holding(image)


def _survives(disk: ModelDisk, node: int, rng: random.Random) -> bytes:
    data = disk.files[node].base
    for op, _ in disk.files[node].pending:
        fate = rng.randrange(3)
        if fate == 0:
            data = apply_bytes(data, op)
        elif fate == 1 and isinstance(op, Write):
            data = apply_bytes(data, Write(op.node, op.offset, op.data[: rng.randrange(len(op.data) + 1)]))
    return data
