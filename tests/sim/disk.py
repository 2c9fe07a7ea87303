"""A disk in memory that forgets as real ones do.

Every file has the content that the kernel shows and the content that is on the platter; every folder likewise its
names. `File.fsync` and `fsync_folder` make the two equal. kill -9 keeps what the kernel shows; a power cut keeps the
platter and, at random, parts of what was on its way: writes whole, torn, missing or as zeros, names kept or lost.
A failed fsync forgets what it should have written and says so once (fsyncgate): the next one succeeds.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .fate import Fate

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


@dataclass(slots=True)
class Inode:
    shown: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    lost: bool = False

    def write(self, data: bytes) -> None:
        self.unsynced.append((len(self.shown), data))
        self.shown += data

    def truncate(self, size: int) -> None:
        self.unsynced.append((size, None))
        del self.shown[size:]

    def fsync(self) -> None:
        for offset, data in self.unsynced:
            _apply(self.synced, offset, data)
        self.unsynced.clear()

    def forget(self) -> None:
        """A failed fsync: the pages are clean now, and nowhere."""
        self.unsynced.clear()
        self.lost = True

    def evict(self) -> None:
        """Show what is really on the platter where a failed fsync left clean pages."""
        shown = bytearray(self.synced)
        for offset, data in self.unsynced:
            _apply(shown, offset, data)
        self.shown, self.lost = shown.ljust(len(self.shown), b"\0"), False

    def power_cut(self, rng: random.Random) -> None:
        kept = bytearray(self.synced)
        how = rng.choice(("none", "all", "prefix", "prefix", "holes"))
        upto = rng.randrange(len(self.unsynced) + 1)
        for place, (offset, data) in enumerate(self.unsynced):
            if how == "all" or (how == "prefix" and place < upto):
                _apply(kept, offset, data)
            elif how == "prefix" and place == upto:
                _tear(kept, offset, data, rng, zeros=False)
            elif how == "holes" and rng.random() < 0.7:
                _tear(kept, offset, data, rng, zeros=rng.random() < 0.5)
        self.shown, self.synced, self.lost = kept, bytearray(kept), False
        self.unsynced.clear()


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _tear(content: bytearray, offset: int, data: bytes | None, rng: random.Random, *, zeros: bool) -> None:
    if data is None:
        return
    cut = rng.randrange(len(data) + 1)
    _apply(content, offset, data[:cut] + bytes(len(data) - cut) if zeros else data[:cut])


@dataclass(slots=True)
class Folder:
    shown: dict[str, Inode | Folder] = field(default_factory=dict)
    synced: dict[str, Inode | Folder] = field(default_factory=dict)
    unsynced: list[dict[str, Inode | Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, Inode | Folder | None]) -> None:
        """Change names in one atomic step: a rename takes one away and gives another."""
        self.unsynced.append(names)
        _rename(self.shown, names)

    def fsync(self) -> None:
        self.synced = dict(self.shown)
        self.unsynced.clear()

    def power_cut(self, rng: random.Random) -> None:
        kept = dict(self.synced)
        in_order = rng.random() < 0.5
        upto = rng.randrange(len(self.unsynced) + 1)
        for place, names in enumerate(self.unsynced):
            if (place < upto) if in_order else rng.random() < 0.5:
                _rename(kept, names)
        self.shown, self.synced = kept, dict(kept)
        self.unsynced.clear()
        for node in kept.values():
            node.power_cut(rng)


def _rename(entries: dict[str, Inode | Folder], names: dict[str, Inode | Folder | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


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
    """A `threads.disk.Disk`. It outlives the process; `kill` and `power_cut` say how the process ended."""

    def __init__(self, fate: Fate, faults: Faults) -> None:
        self.root = Folder()
        self._fate, self._faults, self._rng = fate, faults, fate.rng

    def read(self, path: Path) -> bytes:
        self._begin("read", path.name)
        return bytes(self._inode(path).shown)

    def tail(self, path: Path, size: int) -> bytes:
        self._begin("read", path.name)
        return bytes(self._inode(path).shown[-size:])

    def create(self, path: Path) -> SimFile:
        return SimFile(self, self._link(path, Inode()), path.name)

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

    def mkdir(self, path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not self._exists(folder)]
        for folder in reversed(missing):
            self._change(self._folder(folder.parent), {folder.name: Folder()}, "mkdir", folder.name)
            self.fsync_folder(folder.parent)

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
        for _, inode in self._walk(self.root, ""):
            if inode.lost and self._rng.random() < 0.5:
                inode.evict()

    def power_cut(self) -> None:
        self.root.power_cut(self._rng)

    def files(self) -> dict[str, bytes]:
        """Return what the kernel shows, by path."""
        return {path: bytes(inode.shown) for path, inode in self._walk(self.root, "")}

    def _walk(self, folder: Folder, path: str) -> Iterator[tuple[str, Inode]]:
        for name, node in folder.shown.items():
            if isinstance(node, Folder):
                yield from self._walk(node, f"{path}/{name}")
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
