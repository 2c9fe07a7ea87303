"""What is in a folder, all the way down: no link is followed, and no descriptor is held for long."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from bot.ports.tool import ItemError

from .resolve_beneath import FOLDER, open_at

Kind = Literal["file", "folder", "link", "other"]

MAX_IN_FOLDER = 20_000
"""Entries of one folder that are looked at; more are an error of that folder."""

_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a folder. ``size`` is in bytes, ``on_disk`` what it takes there."""

    parts: tuple[str, ...]
    kind: Kind
    size: int
    on_disk: int

    @property
    def path(self) -> str:
        return "/".join(self.parts)


def walk(root: int, errors: list[ItemError], *, deep: bool = True) -> Iterator[Entry]:
    """Give what is in the open folder *root*, sorted by name, a folder's own entries before those of its folders.

    A folder that cannot be read is added to *errors* and passed over.
    """
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        folder = waiting.pop()
        try:
            entries = _entries(root, folder)
        except OSError:
            errors.append(ItemError("/".join(folder), "permission", "The folder cannot be read."))
            continue
        if len(entries) > MAX_IN_FOLDER:
            errors.append(ItemError("/".join(folder), "validation", "The folder has too many entries."))
        yield from sorted(entries[:MAX_IN_FOLDER], key=lambda entry: entry.parts)
        if deep:
            below = [entry.parts for entry in entries[:MAX_IN_FOLDER] if entry.kind == "folder"]
            waiting += sorted(below, reverse=True)


def _entries(root: int, folder: Sequence[str]) -> list[Entry]:
    fd = open_at(root, folder, FOLDER)
    try:
        with closing(os.scandir(fd)) as found:
            entries = (_entry(folder, entry) for entry in islice(found, MAX_IN_FOLDER + 1))
            return [entry for entry in entries if entry]
    finally:
        os.close(fd)


def _entry(folder: Sequence[str], found: os.DirEntry[str]) -> Entry | None:
    try:
        about = found.stat(follow_symlinks=False)
    except FileNotFoundError:  # gone since it was found
        return None
    kind = _KINDS.get(stat.S_IFMT(about.st_mode), "other")
    return Entry((*folder, found.name), kind, about.st_size, min(about.st_size, about.st_blocks * 512))
