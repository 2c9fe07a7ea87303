"""The entries of a folder and of all folders below it. Follows no link, and holds no descriptor for long."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from bot.ports.tool import ItemError
from bot.tools.files.quota import scan

Kind = Literal["file", "folder", "link", "other"]

MAX_IN_FOLDER = 20_000
"""Entries of one folder that are read; more are an error of that folder."""

_KINDS: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a folder; ``size`` is in bytes."""

    parts: tuple[str, ...]
    kind: Kind
    size: int

    @property
    def path(self) -> str:
        return "/".join(self.parts)


def walk(root: int, errors: list[ItemError], *, recursive: bool = True) -> Iterator[FileEntry]:
    """Yield the entries of the open folder *root*, sorted by name, a folder's own before those of its folders.

    A folder that cannot be read is added to *errors* and skipped.
    """
    pending: list[tuple[str, ...]] = [()]
    while pending:
        folder = pending.pop()
        try:
            states = list(islice(scan(root, folder), MAX_IN_FOLDER + 1))
        except OSError:
            errors.append(ItemError("/".join(folder), "permission", "The folder cannot be read."))
            continue
        if len(states) > MAX_IN_FOLDER:
            errors.append(ItemError("/".join(folder), "validation", "The folder has too many entries."))
        entries = sorted(
            (
                FileEntry((*folder, name), _KINDS.get(stat.S_IFMT(state.st_mode), "other"), state.st_size)
                for name, state in states[:MAX_IN_FOLDER]
            ),
            key=lambda entry: entry.parts,
        )
        yield from entries
        if recursive:
            pending += [entry.parts for entry in reversed(entries) if entry.kind == "folder"]
