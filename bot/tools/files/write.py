"""Writing in the thread's own workspace: whole or not at all, one write at a time, within the workspace's quota.

The bytes go to a temporary file beside the workspace, where no command sees them, and only when they are on the disk
does the file take its name: whoever looks, also after a crash, finds the old file or the new one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from weakref import WeakValueDictionary

import anyio
from pydantic import BeforeValidator, Field, JsonValue

from bot.ports.errors import ToolInvalidInput
from bot.ports.tool import Arguments, ToolContext
from threads.invisible_text import prose
from threads.store.checksummed_lines import scrub
from threads.store.disk import Disk, Offload, write_new

from .quota import Quota
from .read import PathArguments
from .resolve_beneath import FOLDER, TOOL_OUTPUT, mark_output, named, open_at, parts_of, plain, told

MAX_WRITTEN = 10_000_000
"""Bytes of a file that is written or edited."""

TEMPORARY = "write.tmp"
"""Beside the workspace; what a crash leaves behind is replaced by the next write."""

PRIVATE = 0o600


class Writer:
    """Writes the files of all workspaces."""

    def __init__(self, disk: Disk, offload: Offload, quota: Quota) -> None:
        self.offload, self.quota = offload, quota
        self._disk = disk
        self._locks: WeakValueDictionary[Path, anyio.Lock] = WeakValueDictionary()

    def alone(self, workspace: Path) -> anyio.Lock:
        """Return what is held while a file is written, and while one is read to be changed."""
        return self._locks.setdefault(workspace, anyio.Lock())

    def put(self, workspace: Path, path: str, data: bytes) -> bool:
        """Make *data* the content of the file and say whether it is new. Raises `ToolError`s, and nothing changed."""
        parts = parts_of(path)
        if not parts:
            raise ToolInvalidInput("The workspace itself is not a file.")
        if len(data) > MAX_WRITTEN:
            limit = MAX_WRITTEN // 1_000_000
            raise ToolInvalidInput(f"The file would be larger than {limit} MB.", suggestion="Split it.")
        with told(path), ExitStack() as opened:
            self._disk.mkdir(workspace)
            root = _opened(opened, os.open(workspace, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC))
            before = _before(root, parts)
            self.quota.reserve(workspace, *_growth(before, parts, data))
            folder = _opened(opened, _made(root, parts[:-1]))
            mode = stat.S_IMODE(before.st_mode) & 0o777 if before else PRIVATE
            self._replace(workspace.with_name(TEMPORARY), folder, parts[-1], data, mode)
        return before is None

    async def save_output(self, workspace: Path, name: str, data: bytes, *, outside: bool) -> str:
        """Put what a tool gave back into `TOOL_OUTPUT` and return its path there. Raises `ToolError`s.

        ``outside``: it was made of text from outside, and so is whatever is read in this workspace from then on.
        """
        path = f"{TOOL_OUTPUT}/{name}"
        async with self.alone(workspace):
            await self.offload(self._save_output, workspace, path, data, outside)
        return path

    def _save_output(self, workspace: Path, path: str, data: bytes, outside: bool) -> None:
        with told(path):
            self._disk.mkdir(workspace)
            mark_output(workspace, outside=outside)
        self.put(workspace, path, data)

    def _replace(self, temporary: Path, folder: int, name: str, data: bytes, mode: int) -> None:
        try:
            write_new(self._disk, temporary, data)
            if mode != PRIVATE:
                temporary.chmod(mode)
            os.rename(temporary, name, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):  # what stays behind is ignored, and replaced by the next write
                self._disk.unlink(temporary)
            raise
        os.fsync(folder)


ScrubbedText = Annotated[
    str, BeforeValidator(lambda value: scrub(value) if isinstance(value, str) else value)
]
"""A text; half an emoji in it becomes a question mark."""


class WriteArguments(PathArguments):
    path: str = Field(max_length=4096, description="File to write, relative to the workspace")
    content: ScrubbedText = Field(max_length=MAX_WRITTEN, description="All that the file shall hold")

    def always(self) -> str:
        """Return that every file is meant: there is nothing here but this thread's own workspace."""
        return "*"


@dataclass(frozen=True)
class WriteFile:
    writer: Writer
    name: ClassVar[str] = "write_file"
    description: ClassVar[str] = (
        "Write a text file in this thread's workspace. One that is there is replaced, missing folders are made."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = WriteArguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> JsonValue:
        assert isinstance(arguments, WriteArguments)
        data = arguments.content.encode()
        async with self.writer.alone(context.workspace):
            created = await self.writer.offload(self.writer.put, context.workspace, arguments.path, data)
        return {"written": named(arguments.path), "size": len(data), "created": created}


def _opened(opened: ExitStack, fd: int) -> int:
    opened.callback(os.close, fd)
    return fd


def _before(root: int, parts: Sequence[str]) -> os.stat_result | None:
    """Return the state of the file to be replaced; None if there is no file."""
    with ExitStack() as opened:
        try:
            folder = _opened(opened, open_at(root, parts[:-1], FOLDER))
            about = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            _check_new(parts)
            return None
    if stat.S_ISDIR(about.st_mode):
        raise ToolInvalidInput(f"{'/'.join(parts)[:200]!r} is a folder.")
    return plain(about, "written")


def _check_new(parts: Sequence[str]) -> None:
    """Refuse names that people could not read as they are."""
    if any(prose(part, lambda _: "", kept="") != part for part in parts):
        raise ToolInvalidInput("A name must be of plain characters.", suggestion="Choose another name.")


def _growth(before: os.stat_result | None, parts: Sequence[str], data: bytes) -> tuple[int, int]:
    """Return by how many bytes and, at most, by how many entries the workspace grows."""
    return (len(data) - before.st_size, 0) if before else (len(data), len(parts))


def _made(root: int, folders: Sequence[str]) -> int:
    """Open the folder, made if it is missing."""
    try:
        return open_at(root, folders, FOLDER)
    except FileNotFoundError:
        pass
    for depth, name in enumerate(folders):
        with ExitStack() as opened:
            parent = _opened(opened, open_at(root, folders[:depth], FOLDER))
            with suppress(FileExistsError):
                os.mkdir(name, mode=0o700, dir_fd=parent)
                os.fsync(parent)
    return open_at(root, folders, FOLDER)
