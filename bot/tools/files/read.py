"""Reading in the thread's own workspace. Nothing outside it can be named, see `bot.tools.files.resolve_beneath`."""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.ports.errors import ToolInvalidInput
from bot.ports.tool import Arguments, ItemError, ToolContext, ToolOutput
from threads.model import Image
from threads.store.disk import Offload
from threads.store.image_header import HEAD, MAX_BYTES, look

from .file_type import is_binary, kind_of
from .resolve_beneath import FILE, FOLDER, beneath, named, origin, parts_of, regular
from .walk import Entry, walk

MAX_READ = 20_000
"""Bytes of one read; the answer says where to go on."""

MAX_SEEK = 256_000_000
"""Bytes that are counted through for a line; what lies further is reached by bytes."""

MAX_ENTRIES = 500
MAX_VISITED = 20_000
MAX_ERRORS = 20

CHUNK = 1 << 20


class PathArguments(Arguments):
    path: str

    def subject(self) -> str:
        """Return the path in its one form; raises `ToolDenied` for one that leads out."""
        return named(self.path)


class ReadArguments(PathArguments):
    path: str = Field(max_length=4096, description="File to read, relative to the workspace")
    offset: int = Field(
        default=1, ge=1, description="Line to start at, from 1; next_offset says where to go on"
    )
    limit: int = Field(default=2000, ge=1, le=20_000, description="Lines to read at most")
    skip: int = Field(default=0, ge=0, le=1 << 62, description="Bytes to skip there, if next_skip says so")


class ListArguments(PathArguments):
    path: str = Field(default=".", max_length=4096, description="Folder to list, relative to the workspace")
    recursive: bool = Field(default=False, description="List what is in its folders too")
    pattern: str = Field(
        default="", max_length=500, description="Only paths like this, e.g. *.py; * stands for any text"
    )


@dataclass(frozen=True)
class ReadFile:
    offload: Offload
    name: ClassVar[str] = "read_file"
    description: ClassVar[str] = (
        f"Read a text file in this thread's workspace, up to {MAX_READ} bytes at a time."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = ReadArguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        assert isinstance(arguments, ReadArguments)
        return await self.offload(_read, context.workspace, arguments)


@dataclass(frozen=True)
class ListFiles:
    offload: Offload
    name: ClassVar[str] = "list_files"
    description: ClassVar[str] = (
        f"List a folder of this thread's workspace, up to {MAX_ENTRIES} entries at a time."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = ListArguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        assert isinstance(arguments, ListArguments)
        return await self.offload(_list, context.workspace, arguments)


def _read(workspace: Path, asked: ReadArguments) -> ToolOutput:
    with beneath(workspace, asked.path, FILE) as fd:
        size = regular(fd, "read").st_size
        start = _start_of(fd, asked.offset) + asked.skip
        data = os.pread(fd, MAX_READ, start)
        if is_binary(data):
            return _no_text(os.pread(fd, HEAD, 0), size, named(asked.path))
    page = _page(data, asked.limit, last=start + len(data) >= size)
    result: dict[str, JsonValue] = {"text": page.decode("utf-8", "replace"), "size": size}
    if start + len(page) < size:
        lines = page.count(b"\n")
        if asked.skip or not page.endswith(b"\n"):  # in a long line, and whatever comes after one
            result |= {"next_offset": asked.offset, "next_skip": asked.skip + len(page)}
        else:
            result["next_offset"] = asked.offset + lines
    return ToolOutput(result, origin=origin(workspace))


def _start_of(fd: int, line: int) -> int:
    """Return the byte at which the *line* begins, counted from 1."""
    at, missing = 0, line - 1
    while missing:
        chunk = os.pread(fd, CHUNK, at)
        if not chunk:
            lines = line - 1 - missing + (os.pread(fd, 1, max(0, at - 1)) not in (b"", b"\n"))
            raise ToolInvalidInput(f"The file has only {lines} lines.", suggestion="Start earlier.")
        if at >= MAX_SEEK:
            raise ToolInvalidInput("The line is too far down.", suggestion="Use offset 1 and skip bytes.")
        found = chunk.count(b"\n")
        if found >= missing:
            return at + _after(chunk, missing)
        at, missing = at + len(chunk), missing - found
    return 0


def _after(data: bytes, lines: int) -> int:
    """Return where the first *lines* lines of *data*, which has as many, end."""
    end = 0
    for _ in range(lines):
        end = data.index(b"\n", end) + 1
    return end


def _page(data: bytes, limit: int, *, last: bool) -> bytes:
    """Return the whole lines of *data*, *limit* at most; of a line that is longer than that, whole characters."""
    if data.count(b"\n") >= limit:
        return data[: _after(data, limit)]
    if last:
        return data
    if b"\n" in data:
        return data[: data.rindex(b"\n") + 1]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return data[: len(data) - len(decoder.getstate()[0])]


def _no_text(head: bytes, size: int, path: str) -> ToolOutput:
    """Tell what kind of file it is; a picture that models can see is handed over."""
    seen = look(head)
    shown = seen is not None and seen.fits and size <= MAX_BYTES
    images = (Image(path, seen.media_type),) if seen and shown else ()
    return ToolOutput({"binary": kind_of(head), "size": size}, images=images)


def _list(workspace: Path, asked: ListArguments) -> ToolOutput:
    top, errors = parts_of(asked.path), list[ItemError]()
    if not top and not workspace.exists():
        return ToolOutput({"entries": []})
    with beneath(workspace, asked.path, FOLDER) as fd:
        found = list(islice(walk(fd, errors, deep=asked.recursive), MAX_VISITED + 1))
    fitting = [entry for entry in found[:MAX_VISITED] if fits(entry, asked.pattern)]
    result: dict[str, JsonValue] = {"entries": [_shown(entry) for entry in fitting[:MAX_ENTRIES]]}
    if len(fitting) > MAX_ENTRIES:
        result["not_shown"] = len(fitting) - MAX_ENTRIES
    if len(found) > MAX_VISITED:
        result["not_looked_at"] = f"what comes after the first {MAX_VISITED}: list a folder of it"
    return ToolOutput(result, tuple(errors[:MAX_ERRORS]), origin(workspace))


def fits(entry: Entry, pattern: str) -> bool:
    """Say whether the entry's path, or its name alone, is like *pattern*; without one everything is."""
    return not pattern or fnmatchcase(entry.path, pattern) or fnmatchcase(entry.parts[-1], pattern)


def _shown(entry: Entry) -> JsonValue:
    return {"name": entry.path, "kind": entry.kind, "size": entry.size}
