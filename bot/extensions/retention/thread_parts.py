"""The parts of a thread's folder that can be forgotten, each by itself: which there are, and how to erase them.

A part is erased file by file, the history last: its age is that of the thread. So a kill in between leaves the rest
for the next time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from threads.model import ThreadId
from threads.store.data_folder import thread_folder
from threads.store.disk import Disk

Part = Literal["conversation", "attachments", "workspace", "log"]
PARTS: tuple[Part, ...] = ("conversation", "attachments", "workspace", "log")
"""In the order in which they are erased."""

FILES = {"conversation": ("context.old.jsonl", "context.jsonl", "MEMORY.md"), "log": ("log.jsonl",)}
ATTACHMENTS = "attachments"
AGED_BY = ("log.jsonl", "context.jsonl", "context.old.jsonl")


@dataclass(frozen=True, slots=True)
class ThreadFolder:
    """The folder of a thread, and since when nothing was said there (UTC)."""

    thread: ThreadId
    path: Path
    quiet_since: datetime


def thread_folders(data: Path) -> Iterator[ThreadFolder]:
    """Return the folders of all threads. Blocking. Raises OSError.

    One whose name is shortened is left out: nobody knows which thread it is, and so what is open there.
    """
    for path in sorted((data / "threads").glob("*/*")):
        parts = [unquote(part) for part in path.name.split("~")]
        if path.is_dir() and not path.is_symlink() and len(parts) == len(("workspace", "channel", "root")):
            thread = ThreadId(unquote(path.parent.name), *parts)
            if thread_folder(data, thread) == path:
                yield ThreadFolder(thread, path, quiet_since(path))


def quiet_since(folder: Path) -> datetime:
    """Return since when nothing was said in the thread of a folder (UTC). Blocking. Raises OSError."""
    times = list[float]()
    for name in AGED_BY:
        with suppress(FileNotFoundError):
            times.append((folder / name).stat().st_mtime)
    return datetime.fromtimestamp(max(times) if times else folder.stat().st_mtime, UTC)


def files_in(folder: Path, part: Part) -> list[Path]:
    """Return the files of a part, with their damaged lines that were set aside. Blocking. Raises OSError."""
    if part in FILES:
        named = [folder / f"{name}{more}" for name in FILES[part] for more in ("", ".broken")]
        return [path for path in named if path.is_file()]
    workspace = folder / "workspace"
    below = workspace / ATTACHMENTS
    found = [
        Path(place) / name
        for place, _, names in os.walk(below if part == "attachments" else workspace)
        for name in names
        if part == "attachments" or below not in (Path(place), *Path(place).parents)
    ]
    outside = folder / "outside"
    return [*found, outside] if part == "workspace" and outside.exists() else found


def count_files(folder: Path) -> int:
    """Return how many files people and tools put into a thread. Blocking."""
    return len(files_in(folder, "attachments")) + len(files_in(folder, "workspace"))


def size_of(files: Collection[Path]) -> int:
    """Return how many bytes files have; one that is gone has none. Blocking."""
    total = 0
    for path in files:
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def erase(disk: Disk, folder: Path, parts: Collection[Part]) -> None:
    """Erase these parts of a thread, and the folder if nothing is left. Blocking. Raises OSError.

    The folder stays as old as the thread: by it the age of what is left is known.
    """
    age = quiet_since(folder).timestamp()
    for part in PARTS:
        if part not in parts:
            continue
        for path in files_in(folder, part):
            with suppress(FileNotFoundError):
                disk.unlink(path)
    workspace = folder / "workspace"
    if workspace.is_dir() and not files_in(folder, "workspace") and not files_in(folder, "attachments"):
        shutil.rmtree(workspace)
    with suppress(FileNotFoundError):
        disk.fsync_folder(folder)
        if not any(folder.iterdir()):
            folder.rmdir()
            disk.fsync_folder(folder.parent)
        else:
            os.utime(folder, (age, age))
