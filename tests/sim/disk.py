"""A disk in memory that refuses and forgets as real ones do.

Every operation is a place where the process may die, half done if it is a write. `kill` keeps what the kernel shows,
`power_cut` what is on the platter: see `inode`. The rules of `threads.store.disk.PosixDisk` hold here too.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .fate import Fate
from .inode import Folder, Inode

WRITING = frozenset({"write", "fsync", "create", "rename", "unlink", "fsync_folder", "mkdir", "truncate"})


@dataclass(slots=True)
class Faults:
    """What the disk refuses: the n-th call of a kind, everything of some kinds for a while, the rest of a write."""

    nth: dict[str, dict[int, int]] = field(default_factory=dict)
    windows: list[tuple[float, float, frozenset[str], int]] = field(default_factory=list)
    short_writes: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    over: bool = False

    def of(self, kind: str, now: float) -> int:
        """Return the errno for this call, or 0."""
        if self.over:
            return 0
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        if planned := self.nth.get(kind, {}).get(count, 0):
            return planned
        return next((no for start, end, kinds, no in self.windows if start <= now < end and kind in kinds), 0)


class SimFile:
    def __init__(self, disk: SimDisk, inode: Inode, name: str) -> None:
        self._disk, self._inode, self._name = disk, inode, name
        self._closed = False

    def write(self, data: bytes | memoryview) -> int:
        assert not self._closed
        return self._disk.write(self._inode, bytes(data), self._name)

    def fsync(self) -> None:
        assert not self._closed
        self._disk.fsync(self._inode, self._name)

    def close(self) -> None:
        self._closed = True


class SimDisk:
    """A `threads.store.disk.Disk`. It outlives the process; `kill` and `power_cut` say how the process ended."""

    def __init__(self, fate: Fate, faults: Faults, home: Path) -> None:
        self.root = Folder()
        for folder in reversed([*home.parents][:-1]):
            self._node(folder.parent).change({folder.name: Folder()})
            self._node(folder.parent).fsync()
        self._fate, self._faults, self._rng = fate, faults, fate.rng

    def read(self, path: Path) -> bytes:
        self._begin("read", path.name)
        return bytes(self._inode(path).shown)

    def tail(self, path: Path, size: int) -> bytes:
        self._begin("read", path.name)
        return bytes(self._inode(path).shown[-size:])

    def create(self, path: Path) -> SimFile:
        return SimFile(self, self._link(path, Inode(at=self._fate.clock())), path.name)

    def append(self, path: Path) -> SimFile:
        node = self._folder(path.parent).shown.get(path.name)
        if node is None:
            return SimFile(self, self._link(path, Inode()), path.name)
        assert isinstance(node, Inode)
        self._begin("open", path.name)
        return SimFile(self, node, path.name)

    def truncate(self, path: Path, size: int) -> None:
        inode = self._inode(path)
        if self._survives("truncate", path.name):
            inode.truncate(size)
            self.fsync(inode, path.name)
            return
        inode.truncate(size)
        self._fate.die()

    def rename(self, source: Path, target: Path) -> None:
        folder = self._folder(source.parent)
        assert source.parent == target.parent
        inode = self._inode(source)
        self._change(folder, {source.name: None, target.name: inode}, "rename", target.name)

    def unlink(self, path: Path) -> None:
        self._inode(path)
        self._change(self._folder(path.parent), {path.name: None}, "unlink", path.name)

    def fsync_folder(self, path: Path) -> None:
        folder = self._folder(path)
        if self._survives("fsync_folder", path.name):
            folder.fsync()
            return
        if self._rng.random() < 0.5:
            folder.fsync()
        self._fate.die()

    def mkdir(self, *paths: Path) -> None:
        parents = {}
        for path in paths:
            missing = [folder for folder in (path, *path.parents) if not self._exists(folder)]
            for folder in reversed(missing):
                self._change(self._folder(folder.parent), {folder.name: Folder()}, "mkdir", folder.name)
            parents |= {folder.parent: None for folder in reversed(missing or [path])}
        for parent in parents:
            self.fsync_folder(parent)

    def write(self, inode: Inode, data: bytes, name: str) -> int:
        size = len(data)
        if self._fate.step(f"write {name} {size}"):
            inode.write(data[: self._rng.randrange(size + 1)])
            self._fate.die()
        if error := self._faults.of("write", self._fate.clock()):
            taken = self._rng.randrange(size) if error == errno.ENOSPC and self._rng.random() < 0.5 else 0
            if not taken:
                raise OSError(error, errno.errorcode[error])
        elif self._faults.short_writes and self._rng.random() < self._faults.short_writes:
            taken = self._rng.randrange(size) + 1
        else:
            taken = size
        inode.write(data[:taken])
        inode.at = self._fate.clock()
        return taken

    def fsync(self, inode: Inode, name: str) -> None:
        if self._fate.step(f"fsync {name}"):
            if self._rng.random() < 0.5:
                inode.fsync()
            self._fate.die()
        if error := self._faults.of("fsync", self._fate.clock()):
            inode.forget()
            raise OSError(error, errno.errorcode[error])
        inode.fsync()

    def kill(self) -> None:
        for _, inode in self.walk():
            if inode.lost and self._rng.random() < 0.5:
                inode.evict()

    def power_cut(self) -> None:
        self.root.power_cut(self._rng)

    def names(self, path: Path) -> list[str]:
        """Return the names in a folder; one that is missing has none."""
        self._begin("read", path.name)
        return list(self._folder(path).shown) if self._exists(path) else []

    def durable(self, path: Path) -> bytes:
        """Return what a power cut leaves of a file for certain; nothing of one whose name may be lost."""
        node: Inode | Folder | None = self.root
        for name in path.parts[1:]:
            node = node.synced.get(name) if isinstance(node, Folder) else None
        return bytes(node.synced) if isinstance(node, Inode) else b""

    def files(self) -> dict[str, bytes]:
        """Return what the kernel shows, by path."""
        return {path: bytes(inode.shown) for path, inode in self.walk()}

    def walk(self, folder: Folder | None = None, path: str = "") -> Iterator[tuple[str, Inode]]:
        for name, node in (folder or self.root).shown.items():
            if isinstance(node, Folder):
                yield from self.walk(node, f"{path}/{name}")
            else:
                yield f"{path}/{name}", node

    def _link(self, path: Path, inode: Inode) -> Inode:
        self._change(self._folder(path.parent), {path.name: inode}, "create", path.name)
        return inode

    def _change(self, folder: Folder, names: dict[str, Inode | Folder | None], kind: str, name: str) -> None:
        if self._survives(kind, name):
            folder.change(names)
            return
        if self._rng.random() < 0.5:
            folder.change(names)
        self._fate.die()

    def _begin(self, kind: str, name: str) -> None:
        if not self._survives(kind, name):
            self._fate.die()

    def _survives(self, kind: str, name: str) -> bool:
        """Count the operation; False when the process ends with it. Raises what the disk refuses with."""
        if self._fate.step(f"{kind} {name}"):
            return False
        if error := self._faults.of(kind, self._fate.clock()):
            raise OSError(error, errno.errorcode[error])
        return True

    def _node(self, path: Path) -> Inode | Folder:
        node: Inode | Folder = self.root
        for name in path.parts[1:]:
            if not isinstance(node, Folder) or name not in node.shown:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            node = node.shown[name]
        return node

    def _inode(self, path: Path) -> Inode:
        node = self._node(path)
        assert isinstance(node, Inode)
        return node

    def _folder(self, path: Path) -> Folder:
        node = self._node(path)
        assert isinstance(node, Folder)
        return node

    def _exists(self, path: Path) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True
