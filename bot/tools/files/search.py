"""Search in the files of the workspace. A process that can be killed does the matching, `regex_process`."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import Field, JsonValue

from bot.documents.child_process import run_child
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolTimeout
from bot.ports.tool import Arguments, ErrorType, ItemError, ToolContext, ToolOutput
from threads.store.disk import Offload

from .read import MAX_ERRORS, MAX_VISITED, PathArguments, fits
from .resolve_beneath import FILE, beneath, origin, parts_of, regular
from .walk import Entry, walk

WITHIN_S = 20.0
MAX_MATCHES = 100
MAX_FILES = 5_000
MAX_FILE = 10_000_000
"""Bytes of one file that is searched."""

BATCH = 2_000_000
"""Bytes that are read ahead of the matching."""

HEAD = 8_192
MAX_LINE = 10_000
"""Bytes of one line of the matcher's."""

MATCHER = Path(__file__).with_name("regex_process.py")

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class SearchArguments(PathArguments):
    text: str = Field(min_length=1, max_length=1_000, description="What to find, within one line")
    path: str = Field(default=".", max_length=4096, description="Folder or file to search")
    pattern: str = Field(default="", max_length=500, description="Only files like this, e.g. *.py")
    regex: bool = Field(default=False, description="Take text as a Python regular expression")
    ignore_case: bool = Field(default=False, description="Find upper and lower case alike")


@dataclass(slots=True)
class _Found:
    """What a search has found so far. ``fault`` is what ended it before its time."""

    files: list[str] = field(default_factory=list)
    matches: list[str] = field(default_factory=list)
    errors: list[ItemError] = field(default_factory=list)
    binary: int = 0
    more: bool = False
    fault: ToolError | None = None

    def told(self) -> dict[str, JsonValue]:
        result: dict[str, JsonValue] = {"matches": "\n".join(self.matches), "count": len(self.matches)}
        result["searched"] = len(self.files)
        if self.binary:
            result["binary_skipped"] = self.binary
        if self.more:
            result["more"] = "There is more: name a folder, a pattern or a longer text."
        return result


@dataclass(frozen=True)
class SearchFiles:
    offload: Offload
    name: ClassVar[str] = "search_files"
    description: ClassVar[str] = (
        "Find the lines that hold a text, in the text files of this thread's workspace; up to"
        f" {MAX_MATCHES} are shown as path:line: text."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = SearchArguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        assert isinstance(arguments, SearchArguments)
        found, workspace = _Found(), context.workspace
        outside = await self.offload(origin, workspace)
        until = min(context.deadline, anyio.current_time() + WITHIN_S)
        with anyio.CancelScope(deadline=until) as scope:
            await self._search(arguments, workspace, found)
        if scope.cancelled_caught:
            raise ToolTimeout(
                "The search took too long.",
                suggestion="Search a folder of it, or for a plainer text.",
                partial=found.told(),
                origin=outside,
            )
        if found.fault:
            raise found.fault
        return ToolOutput(found.told(), tuple(found.errors[:MAX_ERRORS]), outside)

    async def _search(self, asked: SearchArguments, workspace: Path, found: _Found) -> None:
        files = await self.offload(_files, workspace, asked, found)
        wanted = json.dumps([asked.text if asked.regex else re.escape(asked.text), asked.ignore_case])
        try:
            async with run_child("-S", str(MATCHER)) as matcher, anyio.create_task_group() as tasks:
                tasks.start_soon(self._feed, matcher, f"{wanted}\n".encode(), workspace, files, found)
                await _gather(matcher, found)
                tasks.cancel_scope.cancel()
        except OSError as error:
            raise ToolError("The search could not be started.", suggestion="Try again.") from error

    async def _feed(
        self, matcher: Process, wanted: bytes, workspace: Path, files: Sequence[Entry], found: _Found
    ) -> None:
        assert matcher.stdin
        try:
            await matcher.stdin.send(wanted)
            for batch in _batches(files):
                for path, data in await self.offload(_load, workspace, batch, found):
                    found.files.append(path)
                    await matcher.stdin.send(b"%d\n" % len(data))
                    await matcher.stdin.send(data)
            await matcher.stdin.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it has ended, and what it said last is read by `_gather`


async def _gather(matcher: Process, found: _Found) -> None:
    """Take in what matches until there is no more, or enough."""
    assert matcher.stdout
    lines = BufferedByteReceiveStream(matcher.stdout)
    while True:
        try:
            line = await lines.receive_until(b"\n", MAX_LINE)
        except (anyio.EndOfStream, anyio.IncompleteRead):
            break
        match json.loads(line):
            case str(why):
                found.fault = ToolInvalidInput(f"This is no regular expression: {why}")
            case [index, number, text]:
                found.matches.append(f"{found.files[index]}:{number}: {text}")
        if len(found.matches) == MAX_MATCHES:
            found.more = True
            return
    if await matcher.wait() and not found.fault:
        found.fault = ToolError("The search took too much.", suggestion="Search for a plainer text.")


def _files(workspace: Path, asked: SearchArguments, found: _Found) -> list[Entry]:
    """Return the files to search, their paths from the workspace on."""
    top = parts_of(asked.path)
    if not top and not workspace.exists():
        return []
    with beneath(workspace, asked.path, FILE) as fd:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            return [Entry(top, "file", regular(fd, "searched").st_size, 0)]
        entries = list(islice(walk(fd, found.errors), MAX_VISITED + 1))
    files = [entry for entry in entries if entry.kind == "file" and fits(entry, asked.pattern)]
    found.more = len(entries) > MAX_VISITED or len(files) > MAX_FILES
    return [replace(entry, parts=(*top, *entry.parts)) for entry in files[:MAX_FILES]]


def _batches(files: Sequence[Entry]) -> Iterator[list[Entry]]:
    batch, size = list[Entry](), 0
    for file in files:
        if batch and size + file.size > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    yield batch


def _load(workspace: Path, batch: Sequence[Entry], found: _Found) -> list[tuple[str, bytes]]:
    """Read the texts among the files."""
    texts = []
    for file in batch:
        try:
            with beneath(workspace, file.path, FILE) as fd:
                data = _content(fd)
        except ToolError as error:
            kind: ErrorType = "permission" if isinstance(error, ToolDenied) else "unknown"
            found.errors.append(ItemError(file.path, kind, str(error)))
            continue
        if b"\0" in data[:HEAD]:
            found.binary += 1
        else:
            texts.append((_CONTROLS.sub("?", file.path), data))
    return texts


def _content(fd: int) -> bytes:
    regular(fd, "searched")
    with os.fdopen(os.dup(fd), "rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ToolInvalidInput(f"The file is larger than {MAX_FILE // 1_000_000} MB and was not searched.")
    return data
