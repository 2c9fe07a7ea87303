"""What a file system keeps of a file and a folder: what the kernel shows, and what is on the platter.

A power cut keeps the platter and, at random, parts of what was on its way there: writes whole, torn, missing or as
zeros; names kept or lost, in order or not. A failed fsync forgets its pages and marks them clean (fsyncgate).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Inode:
    shown: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    lost: bool = False
    at: float = 0.0
    """When it was last written."""

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
