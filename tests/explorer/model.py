"""A `threads.store.disk.Disk` in memory that knows which of its operations a power cut may still undo.

Two views are kept: what the running system sees, and what is durable plus the operations not yet synced. Syncing a file
makes its bytes durable, syncing a folder its names; with ``ordered`` any sync also commits every earlier name
operation, as journaling file systems do. A file whose fsync failed keeps its bytes in view, but they are in doubt for
ever: later syncs skip them (on Linux a failed fsync marks the pages clean).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Read:
    path: str


@dataclass(frozen=True, slots=True)
class Link:
    path: str
    node: int


@dataclass(frozen=True, slots=True)
class Unlink:
    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    path: str
    target: str
    node: int


@dataclass(frozen=True, slots=True)
class MakeFolder:
    path: str


@dataclass(frozen=True, slots=True)
class Write:
    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    node: int
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    node: int


@dataclass(frozen=True, slots=True)
class Doubt:
    """A file's fsync failed: what was not durable by then may never be."""

    node: int


@dataclass(frozen=True, slots=True)
class SyncFolder:
    path: str


NameOp = Link | Unlink | Rename | MakeFolder
DataOp = Write | Cut
Op = NameOp | DataOp | Sync | Doubt | SyncFolder
Faults = Callable[[Op | Read], Op | Read]
"""Looks at each operation before it happens: raises OSError, or returns it, or a shorter write."""

Image = Mapping[str, bytes | None]
"""What can be seen of a disk: the bytes of each file, None for a folder."""

FOLDER = -1
ROOT = Path("/")


def folder_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def apply_bytes(data: bytes, op: DataOp) -> bytes:
    match op:
        case Write():
            return data[: op.offset].ljust(op.offset, b"\0") + op.data + data[op.offset + len(op.data) :]
        case Cut():
            return data[: op.size].ljust(op.size, b"\0")


def apply_name(names: dict[str, int], op: NameOp) -> None:
    match op:
        case Link():
            names[op.path] = op.node
        case Unlink():
            names.pop(op.path, None)
        case Rename():
            if names.get(op.path) == op.node:
                del names[op.path]
            names[op.target] = op.node
        case MakeFolder():
            names[op.path] = FOLDER


@dataclass(frozen=True, slots=True)
class Content:
    """A file: ``now`` is in view, ``base`` durable, ``pending`` neither (in order, with "for ever in doubt")."""

    now: bytes = b""
    base: bytes = b""
    pending: tuple[tuple[DataOp, bool], ...] = ()

    def changed(self, op: DataOp) -> Content:
        return replace(self, now=apply_bytes(self.now, op), pending=(*self.pending, (op, False)))

    def synced(self) -> Content:
        """Make durable what is not in doubt; what lies under doubtful bytes stays pending with them."""
        doubtful = tuple(part for part in self.pending if part[1])
        if not doubtful:
            return Content(self.now, self.now)
        base = self.base
        for op, doubt in self.pending:
            if not doubt:
                base = apply_bytes(base, op)
        return Content(self.now, base, doubtful)

    def doubted(self) -> Content:
        return replace(self, pending=tuple((op, True) for op, _ in self.pending))


@dataclass(slots=True)
class ModelFile:
    disk: ModelDisk
    node: int

    def write(self, data: bytes | memoryview) -> int:
        end = len(self.disk.files[self.node].now)
        done = self.disk.perform(Write(self.node, end, bytes(data[: self.disk.longest_write])))
        assert isinstance(done, Write)
        return len(done.data)

    def fsync(self) -> None:
        self.disk.perform(Sync(self.node))

    def close(self) -> None:
        pass


@dataclass(slots=True)
class ModelDisk:
    """``ops`` is everything done so far; `copy` and `perform` replay it elsewhere."""

    ordered: bool = False
    longest_write: int = 1_000_000
    faults: Faults = lambda op: op
    ops: list[Op] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    durable_names: dict[str, int] = field(default_factory=dict)
    pending_names: list[NameOp] = field(default_factory=list)
    files: dict[int, Content] = field(default_factory=dict)

    @classmethod
    def holding(cls, image: Image, *, ordered: bool = False) -> ModelDisk:
        """Return a disk on which all of *image* is durable."""
        disk = cls(ordered=ordered)
        for path, data in image.items():
            node = FOLDER if data is None else len(disk.files)
            disk.names[path] = disk.durable_names[path] = node
            if data is not None:
                disk.files[node] = Content(data, data)
        return disk

    def copy(self) -> ModelDisk:
        """Return an independent disk in the same state, with no operations yet: the same machine, a new process."""
        return ModelDisk(
            self.ordered,
            names=dict(self.names),
            durable_names=dict(self.durable_names),
            pending_names=list(self.pending_names),
            files=dict(self.files),
        )

    def seen(self) -> dict[str, bytes | None]:
        return {path: None if node == FOLDER else self.files[node].now for path, node in self.names.items()}

    def state(self) -> Hashable:
        """Return all that matters of the disk: what is seen, what is durable, what is in between."""
        return (
            frozenset(self.names.items()),
            frozenset(self.durable_names.items()),
            tuple(self.pending_names),
            frozenset(self.files.items()),
        )

    def perform(self, op: Op) -> Op:
        """Do *op* as far as the faults let it; returns what was done."""
        try:
            done = self.faults(op)
        except OSError:
            if isinstance(op, Sync):
                self._do(Doubt(op.node))
            raise
        assert not isinstance(done, Read)
        self._do(done)
        return done

    def _do(self, done: Op) -> None:
        self.ops.append(done)
        match done:
            case Write() | Cut():
                self.files[done.node] = self.files[done.node].changed(done)
            case Sync():
                self.files[done.node] = self.files[done.node].synced()
                self._commit(lambda _: self.ordered)
            case Doubt():
                self.files[done.node] = self.files[done.node].doubted()
            case SyncFolder():
                self._commit(lambda op: self.ordered or folder_of(op.path) == done.path)
            case Link() | Unlink() | Rename() | MakeFolder():
                if isinstance(done, Link) and done.node not in self.files:
                    self.files[done.node] = Content()
                apply_name(self.names, done)
                self.pending_names.append(done)

    def _commit(self, which: Callable[[NameOp], bool]) -> None:
        rest: list[NameOp] = []
        for op in self.pending_names:
            if which(op):
                apply_name(self.durable_names, op)
            else:
                rest.append(op)
        self.pending_names = rest

    def _node(self, path: Path) -> int:
        node = self.names.get(os.fspath(path))
        if node is None or node == FOLDER:
            raise FileNotFoundError(errno.ENOENT, "no such file", os.fspath(path))
        return node

    def _folder(self, path: str) -> None:
        if path != os.fspath(ROOT) and self.names.get(path) != FOLDER:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)

    def _new(self, path: str) -> ModelFile:
        self._folder(folder_of(path))
        node = max(self.files, default=0) + 1
        self.perform(Link(path, node))
        return ModelFile(self, node)

    def read(self, path: Path) -> bytes:
        self.faults(Read(os.fspath(path)))
        return self.files[self._node(path)].now

    def tail(self, path: Path, size: int) -> bytes:
        data = self.read(path)
        return data[max(0, len(data) - size) :]

    def create(self, path: Path) -> ModelFile:
        if os.fspath(path) in self.names:
            self.unlink(path)
        return self._new(os.fspath(path))

    def append(self, path: Path) -> ModelFile:
        if os.fspath(path) in self.names:
            self.faults(Read(os.fspath(path)))
            return ModelFile(self, self._node(path))
        return self._new(os.fspath(path))

    def truncate(self, path: Path, size: int) -> None:
        node = self._node(path)
        self.perform(Cut(node, size))
        self.perform(Sync(node))

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "the model keeps renames within one folder"
        self.perform(Rename(os.fspath(source), os.fspath(target), self._node(source)))

    def unlink(self, path: Path) -> None:
        self._node(path)
        self.perform(Unlink(os.fspath(path)))

    def fsync_folder(self, path: Path) -> None:
        self._folder(os.fspath(path))
        self.perform(SyncFolder(os.fspath(path)))

    def mkdir(self, *paths: Path) -> None:
        parents = {}
        for path in paths:
            missing = [
                folder
                for folder in (path, *path.parents)
                if folder != ROOT and os.fspath(folder) not in self.names
            ]
            for folder in reversed(missing):
                self.perform(MakeFolder(os.fspath(folder)))
            parents |= {folder.parent: None for folder in reversed(missing or [path])}
        for parent in parents:
            self.fsync_folder(parent)


def reachable(names: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    """Return the names whose every parent folder exists too."""
    for path, node in names.items():
        parent = folder_of(path)
        while parent != "/" and names.get(parent) == FOLDER:
            parent = folder_of(parent)
        if parent == "/":
            yield path, node
