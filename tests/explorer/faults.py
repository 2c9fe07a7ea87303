"""A disk that refuses: the n-th operation fails, once or from then on, cleanly or after a short write."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from .model import (
    Cut,
    Doubt,
    Faults,
    Link,
    MakeFolder,
    ModelDisk,
    Op,
    Read,
    Rename,
    Sync,
    SyncFolder,
    Unlink,
    Write,
)

Kind = Literal["full", "io", "read-only"]


@dataclass(slots=True)
class NthFails:
    """Fails operation number *n*; with *sticky* every one from there on that this kind of fault would hit.

    A full disk takes half of the write that it refuses, and still reads, syncs and removes.
    """

    n: int
    kind: Kind = "io"
    sticky: bool = False
    count: int = 0
    hit: bool = False

    def __call__(self, op: Op | Read) -> Op | Read:
        if not self._concerns(op):
            return op
        self.count += 1
        if self.kind == "full" and self.count == self.n and isinstance(op, Write) and len(op.data) > 1:
            return replace(op, data=op.data[: len(op.data) // 2])
        first = self.n + 1 if self.kind == "full" else self.n
        if self.count == first or (self.sticky and self.count > first):
            self.hit = True
            code = {"full": errno.ENOSPC, "io": errno.EIO, "read-only": errno.EROFS}[self.kind]
            raise OSError(code, os.strerror(code))
        return op

    def _concerns(self, op: Op | Read) -> bool:
        match op:
            case Read():
                return self.kind == "io"
            case Write() | Link() | MakeFolder():
                return True
            case Rename() | Cut() | Unlink():
                return self.kind != "full"
            case Sync() | Doubt() | SyncFolder():
                return self.kind == "io"


def no_faults(op: Op | Read) -> Op | Read:
    return op


async def under(faults: Faults, disk: ModelDisk, play: Callable[[], Awaitable[None]]) -> None:
    """Play with the faults in force; an OSError may end it, as it may end the start of the program."""
    disk.faults = faults
    try:
        await play()
    except OSError:
        pass
    finally:
        disk.faults = no_faults
