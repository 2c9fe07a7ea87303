"""Searches the files of the workspace for a plain text. An expression is the shell's to match: one can never end."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field, replace
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

import anyio
from pydantic import Field, JsonValue

from bot.ports.errors import ToolDenied, ToolError, ToolTimeout
from bot.ports.tool import Arguments, ErrorType, ItemError, ToolContext, ToolOutput
from bot.tools.files.workspace import open_path, path_parts, require_regular
from threads.store.disk import Offload
from threads.store.open_beneath import FILE

from .paths import PathArguments, origin, read_whole
from .read import MAX_ERRORS, MAX_VISITED, matches_pattern
from .walk import FileEntry, walk

TIMEOUT_S = 20.0
MAX_MATCHES = 100
MAX_FILES = 5_000
MAX_FILE = 10_000_000
"""Bytes of one file that is searched."""

HEAD = 8_192
EXCERPT = 240
"""Characters of a matching line that are shown."""

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class SearchArguments(PathArguments):
    text: str = Field(min_length=1, max_length=1_000, description="What to find, within one line")
    path: str = Field(default=".", max_length=4096, description="Folder or file to search")
    pattern: str = Field(default="", max_length=500, description="Only files like this, e.g. *.py")
    ignore_case: bool = Field(default=False, description="Ignore upper and lower case")


@dataclass(slots=True)
class _Findings:
    """What a search has found so far."""

    searched: int = 0
    matches: list[str] = field(default_factory=list)
    errors: list[ItemError] = field(default_factory=list)
    binary: int = 0
    more: bool = False

    def report(self) -> dict[str, JsonValue]:
        result: dict[str, JsonValue] = {"matches": "\n".join(self.matches), "count": len(self.matches)}
        result["searched"] = self.searched
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

    async def __call__(self, arguments: SearchArguments, context: ToolContext) -> ToolOutput:
        findings, workspace = _Findings(), context.workspace
        outside = await self.offload(origin, workspace)
        with anyio.CancelScope(deadline=min(context.deadline, anyio.current_time() + TIMEOUT_S)) as scope:
            await self._search(arguments, workspace, findings)
        if scope.cancelled_caught:
            raise ToolTimeout(
                "The search took too long.",
                suggestion="Search a smaller folder.",
                partial=findings.report(),
                origin=outside,
            )
        return ToolOutput(findings.report(), tuple(findings.errors[:MAX_ERRORS]), outside)

    async def _search(self, arguments: SearchArguments, workspace: Path, findings: _Findings) -> None:
        for file in await self.offload(_list_files, workspace, arguments, findings):
            if (data := await self.offload(_read_text, workspace, file, findings)) is None:
                continue
            findings.searched += 1
            room = MAX_MATCHES - len(findings.matches)
            findings.matches += await self.offload(_matches, file.path, data, arguments, room)
            if len(findings.matches) == MAX_MATCHES:
                findings.more = True
                return


def _matches(path: str, data: bytes, arguments: SearchArguments, room: int) -> list[str]:
    """Return the first *room* lines with the text, each with its place."""
    name = _CONTROLS.sub("?", path)
    wanted = arguments.text.lower() if arguments.ignore_case else arguments.text
    found = []
    for number, full_line in enumerate(TextIOWrapper(BytesIO(data), "utf-8", "replace", newline="\n"), 1):
        at = (full_line.lower() if arguments.ignore_case else full_line).find(wanted)
        if at < 0:
            continue
        line = full_line.rstrip("\r\n")
        start = max(0, min(at - EXCERPT // 4, len(line) - EXCERPT))
        found.append(f"{name}:{number}: {line[start : start + EXCERPT].strip()}")
        if len(found) == room:
            break
    return found


def _list_files(workspace: Path, arguments: SearchArguments, findings: _Findings) -> list[FileEntry]:
    """Return the files to search, with their paths in the workspace."""
    if not (top := path_parts(arguments.path)) and not workspace.exists():
        return []
    with open_path(workspace, arguments.path, FILE) as fd:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            return [FileEntry(top, "file", require_regular(fd, "searched").st_size)]
        entries = list(islice(walk(fd, findings.errors), MAX_VISITED + 1))
    files = [entry for entry in entries if entry.kind == "file" and matches_pattern(entry, arguments.pattern)]
    findings.more = len(entries) > MAX_VISITED or len(files) > MAX_FILES
    return [replace(entry, parts=(*top, *entry.parts)) for entry in files[:MAX_FILES]]


def _read_text(workspace: Path, file: FileEntry, findings: _Findings) -> bytes | None:
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
