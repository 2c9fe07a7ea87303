"""Searches the files of the workspace. The matching runs in a process that can be killed, `regex_process`."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Sequence
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
from threads.store.open_beneath import FILE

from .read import MAX_ERRORS, MAX_VISITED, matches_pattern
from .walk import Entry, walk
from .workspace import PathArguments, open_path, origin, path_parts, read_whole, require_regular

TIMEOUT_S = 20.0
MAX_MATCHES = 100
MAX_FILES = 5_000
MAX_FILE = 10_000_000
"""Bytes of one file that is searched."""

HEAD = 8_192
MAX_LINE = 10_000
"""Bytes of a line that the matching process writes."""

MATCHER = Path(__file__).with_name("regex_process.py")

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class SearchArguments(PathArguments):
    text: str = Field(min_length=1, max_length=1_000, description="What to find, within one line")
    path: str = Field(default=".", max_length=4096, description="Folder or file to search")
    pattern: str = Field(default="", max_length=500, description="Only files like this, e.g. *.py")
    regex: bool = Field(default=False, description="Read text as a Python regular expression")
    ignore_case: bool = Field(default=False, description="Ignore upper and lower case")


@dataclass(slots=True)
class _Findings:
    """What a search has found so far; ``failure`` ended it early."""

    files: list[str] = field(default_factory=list)
    matches: list[str] = field(default_factory=list)
    errors: list[ItemError] = field(default_factory=list)
    binary: int = 0
    more: bool = False
    failure: ToolError | None = None

    def report(self) -> dict[str, JsonValue]:
        result: dict[str, JsonValue] = {"matches": "\n".join(self.matches), "count": len(self.matches)}
        result["searched"] = len(self.files)
        if self.binary:
            result["binary_skipped"] = self.binary
        if self.more:
            result["more"] = "There are more matches: name a folder, a pattern or a longer text."
        return result


@dataclass(frozen=True)
class SearchFiles:
    offload: Offload
    name: ClassVar[str] = "search_files"
    description: ClassVar[str] = (
        "Find the lines that contain a text, in the text files of this thread's workspace; up to"
        f" {MAX_MATCHES} are shown as path:line: text."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = SearchArguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        assert isinstance(arguments, SearchArguments)
        findings, workspace = _Findings(), context.workspace
        outside = await self.offload(origin, workspace)
        deadline = min(context.deadline, anyio.current_time() + TIMEOUT_S)
        with anyio.CancelScope(deadline=deadline) as scope:
            await self._search(arguments, workspace, findings)
        if scope.cancelled_caught:
            raise ToolTimeout(
                "The search took too long.",
                suggestion="Search a smaller folder, or for a plainer text.",
                partial=findings.report(),
                origin=outside,
            )
        if findings.failure:
            raise findings.failure
        return ToolOutput(findings.report(), tuple(findings.errors[:MAX_ERRORS]), outside)

    async def _search(self, arguments: SearchArguments, workspace: Path, findings: _Findings) -> None:
        files = await self.offload(_list_files, workspace, arguments, findings)
        pattern = arguments.text if arguments.regex else re.escape(arguments.text)
        query = f"{json.dumps([pattern, arguments.ignore_case])}\n".encode()
        try:
            async with run_child("-S", str(MATCHER)) as matcher, anyio.create_task_group() as tasks:
                tasks.start_soon(self._feed, matcher, query, workspace, files, findings)
                await _collect(matcher, findings)
                tasks.cancel_scope.cancel()
        except OSError as error:
            raise ToolError("The search could not be started.", suggestion="Try again.") from error

    async def _feed(
        self, matcher: Process, query: bytes, workspace: Path, files: Sequence[Entry], findings: _Findings
    ) -> None:
        assert matcher.stdin
        try:
            await matcher.stdin.send(query)
            for file in files:
                data = await self.offload(_read_text, workspace, file, findings)
                if data is not None:
                    findings.files.append(_CONTROLS.sub("?", file.path))
                    await matcher.stdin.send(b"%d\n" % len(data))
                    await matcher.stdin.send(data)
            await matcher.stdin.aclose()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the process has ended; `_collect` reads its last output


async def _collect(matcher: Process, findings: _Findings) -> None:
    """Collect matches until the end, or until there are enough."""
    assert matcher.stdout
    lines = BufferedByteReceiveStream(matcher.stdout)
    while True:
        try:
            line = await lines.receive_until(b"\n", MAX_LINE)
        except (anyio.EndOfStream, anyio.IncompleteRead):
            break
        match json.loads(line):
            case str(reason):
                findings.failure = ToolInvalidInput(f"This is not a valid regular expression: {reason}")
            case [index, number, text]:
                findings.matches.append(f"{findings.files[index]}:{number}: {text}")
        if len(findings.matches) == MAX_MATCHES:
            findings.more = True
            return
    if await matcher.wait() and not findings.failure:
        findings.failure = ToolError(
            "The search took too much time or memory.", suggestion="Search for a plainer text."
        )


def _list_files(workspace: Path, arguments: SearchArguments, findings: _Findings) -> list[Entry]:
    """Return the files to search, with their paths in the workspace."""
    top = path_parts(arguments.path)
    if not top and not workspace.exists():
        return []
    with open_path(workspace, arguments.path, FILE) as fd:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            return [Entry(top, "file", require_regular(fd, "searched").st_size)]
        entries = list(islice(walk(fd, findings.errors), MAX_VISITED + 1))
    files = [entry for entry in entries if entry.kind == "file" and matches_pattern(entry, arguments.pattern)]
    findings.more = len(entries) > MAX_VISITED or len(files) > MAX_FILES
    return [replace(entry, parts=(*top, *entry.parts)) for entry in files[:MAX_FILES]]


def _read_text(workspace: Path, file: Entry, findings: _Findings) -> bytes | None:
    """Return the content of a file, or None if it is not text or cannot be read."""
    try:
        data = read_whole(workspace, file.path, "searched", MAX_FILE)
    except ToolError as error:
        kind: ErrorType = "permission" if isinstance(error, ToolDenied) else "unknown"
        findings.errors.append(ItemError(file.path, kind, str(error)))
        return None
    if b"\0" in data[:HEAD]:
        findings.binary += 1
        return None
    return data
