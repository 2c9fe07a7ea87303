"""Reading in the thread's own workspace. Nothing outside it can be named.

Each part of a path is opened from the folder before it without following links, so there is no moment between a
check and a use: `..`, absolute paths, symlinks, devices, pipes and second names of foreign files are all refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.errors import ToolDenied, ToolInvalidInput, ToolNotFound
from threads.disk import Offload

from .base import Arguments, Place

MAX_READ = 20_000
"""Bytes of one read; the answer says where to go on."""

MAX_ENTRIES = 500


class ReadArguments(Arguments):
    path: str = Field(description="File to read, relative to the workspace")
    offset: int = Field(default=0, ge=0, description="Byte to start at")


class ListArguments(Arguments):
    path: str = Field(default=".", description="Folder to list, relative to the workspace")


@dataclass(frozen=True)
class ReadFile:
    offload: Offload
    name: ClassVar[str] = "read_file"
    description: ClassVar[str] = (
        f"Read a text file in this thread's workspace, up to {MAX_READ} bytes at a time."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = ReadArguments

    async def __call__(self, arguments: Arguments, place: Place) -> JsonValue:
        assert isinstance(arguments, ReadArguments)
        return await self.offload(_read, place.workspace, arguments.path, arguments.offset)


@dataclass(frozen=True)
class ListFiles:
    offload: Offload
    name: ClassVar[str] = "list_files"
    description: ClassVar[str] = "List a folder in this thread's workspace."
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = ListArguments

    async def __call__(self, arguments: Arguments, place: Place) -> JsonValue:
        assert isinstance(arguments, ListArguments)
        return await self.offload(_list, place.workspace, arguments.path)


def _read(workspace: Path, path: str, offset: int) -> JsonValue:
    with beneath(workspace, path, os.O_RDONLY | os.O_NONBLOCK) as fd:
        about = regular(fd, "read")
        data = os.pread(fd, MAX_READ, offset)
    end = offset + len(data)
    if b"\0" in data:
        return {"binary": True, "size": about.st_size}
    result: dict[str, JsonValue] = {"text": data.decode("utf-8", "replace"), "size": about.st_size}
    if end < about.st_size:
        result["next_offset"] = end
    return result


def _list(workspace: Path, path: str) -> JsonValue:
    if path in ("", ".", "./") and not workspace.exists():
        return {"entries": []}
    with (
        beneath(workspace, path or ".", os.O_RDONLY | os.O_DIRECTORY) as fd,
        closing(os.scandir(fd)) as found,
    ):
        entries = sorted(found, key=lambda entry: entry.name)
        listed: list[JsonValue] = [_entry(entry) for entry in entries[:MAX_ENTRIES]]
    result: dict[str, JsonValue] = {"entries": listed}
    if len(entries) > MAX_ENTRIES:
        result["not_shown"] = len(entries) - MAX_ENTRIES
    return result


def _entry(entry: os.DirEntry[str]) -> JsonValue:
    about = entry.stat(follow_symlinks=False)
    kind = "folder" if stat.S_ISDIR(about.st_mode) else "file" if stat.S_ISREG(about.st_mode) else "other"
    return {"name": entry.name, "kind": kind, "size": about.st_size}


def regular(fd: int, done: str) -> os.stat_result:
    """Return what is known of an open file that may be *done*; raises `ToolDenied` for what is no plain file."""
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        raise ToolDenied(f"Only regular files of this workspace can be {done}.")
    return about


@contextmanager
def beneath(workspace: Path, path: str, flags: int) -> Iterator[int]:
    """Open *path* below *workspace*; raises `ToolError`s with a message that names only what the model named."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise ToolDenied("The path leads out of the workspace.", suggestion="Use a path relative to it.")
    with ExitStack() as opened:

        def step(name: str | Path, flags: int, folder: int | None) -> int:
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            opened.callback(os.close, fd)
            return fd

        try:
            fd = step(workspace, os.O_RDONLY | os.O_DIRECTORY, None)
            for part in parts[:-1]:
                fd = step(part, os.O_RDONLY | os.O_DIRECTORY, fd)
            fd = step(parts[-1] if parts else ".", flags, fd)
        except FileNotFoundError:
            raise ToolNotFound(
                f"There is no {path[:200]!r} here.", suggestion="List the folder first."
            ) from None
        except (OSError, ValueError) as error:
            raise ToolInvalidInput(f"{path[:200]!r} cannot be opened.") from error
        yield fd
