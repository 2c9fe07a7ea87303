"""Changes a part of a file by exact replacement: the old text must be there just as the model wrote it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from bot.ports.errors import ToolInvalidInput
from bot.ports.tool import Arguments, ToolContext, ToolOutput
from bot.tools.files.write import MAX_WRITTEN, Writer

from .paths import AnyPathArguments, normalize, origin, read_whole
from .read import is_binary
from .write import ScrubbedText

CONTEXT = 2
"""Lines that a diff shows around a change."""

MAX_LINES, MAX_TAIL = 200, 50
"""Lines that are compared for a diff, and those of them that follow the first change."""

MAX_DIFF = 4_000
MAX_LINE = 200
"""Characters of a diff, and of each of its lines."""

MAX_MATCHES = 20


class EditArguments(AnyPathArguments):
    path: str = Field(max_length=4096, description="File to edit, relative to the workspace")
    old: ScrubbedText = Field(
        min_length=1, max_length=MAX_WRITTEN, description="Text to replace, exactly as it is there"
    )
    new: ScrubbedText = Field(max_length=MAX_WRITTEN, description="Text to put in its place")
    all: bool = Field(default=False, description="Replace every occurrence; else it must occur just once")


@dataclass(frozen=True, slots=True)
class Edit:
    """A file's new content, the number of replacements, the line of the first one, and a diff."""

    data: bytes
    count: int
    line: int
    diff: str


@dataclass(frozen=True)
class EditFile:
    writer: Writer
    name: ClassVar[str] = "edit_file"
    description: ClassVar[str] = (
        "Replace a text in a file of this thread's workspace. It must occur exactly once: include enough of the text"
        " around it, or set all."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = EditArguments

    async def check(self, arguments: EditArguments, context: ToolContext) -> None:
        await self.writer.offload(_read, context.workspace, arguments.path)

    async def __call__(self, arguments: EditArguments, context: ToolContext) -> ToolOutput:
        async with self.writer.lock(context.workspace):
            return await self.writer.offload(self._edit, arguments, context.workspace)

    def _edit(self, arguments: EditArguments, workspace: Path) -> ToolOutput:
        data, outside = _read(workspace, arguments.path), origin(workspace)
        try:
            edit = replace_text(
                data, arguments.old.encode(), arguments.new.encode(), everywhere=arguments.all
            )
        except ToolInvalidInput as error:
            error.origin = outside
            raise
        self.writer.write(workspace, arguments.path, edit.data)
        path = normalize(arguments.path)
        return ToolOutput(
            {"edited": path, "replaced": edit.count, "line": edit.line, "diff": edit.diff}, origin=outside
        )


def replace_text(data: bytes, old: bytes, new: bytes, *, everywhere: bool) -> Edit:
    """Replace *old* by *new*, with CRLF in both if the file's lines end so; raises `ToolInvalidInput`."""
    if old not in data and b"\r\n" in data and b"\r" not in old:
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    if not (offsets := list(islice(_offsets(data, old), MAX_MATCHES + 1))):
        raise ToolInvalidInput(
            "The text does not occur in the file.",
            suggestion="Read the file and copy the text exactly, with all its spaces.",
        )
    if len(offsets) > 1 and not everywhere:
        times = f"{len(offsets)} times" if len(offsets) <= MAX_MATCHES else f"more than {MAX_MATCHES} times"
        raise ToolInvalidInput(
            f"The text occurs {times} in the file.",
            suggestion="Include more of the text around it, or set all to replace it everywhere.",
            partial={"lines": [_line_number(data, offset) for offset in offsets[:MAX_MATCHES]]},
        )
    count = data.count(old)
    if len(data) + count * (len(new) - len(old)) > MAX_WRITTEN:
        raise ToolInvalidInput(f"The file would be larger than {MAX_WRITTEN // 1_000_000} MB.")
    return Edit(
        data.replace(old, new), count, _line_number(data, offsets[0]), _diff(data, offsets[0], old, new)
    )


def _offsets(data: bytes, text: bytes) -> Iterator[int]:
    """Yield where *text* occurs, also where it overlaps itself."""
    offset = data.find(text)
    while offset >= 0:
        yield offset
        offset = data.find(text, offset + 1)


def _diff(data: bytes, offset: int, old: bytes, new: bytes) -> str:
    """Return the first changed lines, before and after, with the lines around them; the first is at *offset*."""
    lead = b"\n".join(data[max(0, offset - MAX_DIFF) : offset].split(b"\n")[-CONTEXT - 1 :])
    end = offset + len(old)
    tail = b"\n".join(data[end : end + MAX_DIFF].split(b"\n")[:MAX_TAIL])
    excerpt, first = lead + old + tail, _line_number(data, offset) - lead.count(b"\n")
    before, after = _lines(excerpt)[:MAX_LINES], _lines(excerpt.replace(old, new))[:MAX_LINES]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    lines = list[str]()
    for hunk in matcher.get_grouped_opcodes(CONTEXT):
        lines.append(f"@@ line {first + hunk[0][1]} @@")
        for tag, start, end, start_after, end_after in hunk:
            if tag == "equal":
                lines += [f" {line}" for line in before[start:end]]
            else:
                lines += [f"-{line}" for line in before[start:end]]
                lines += [f"+{line}" for line in after[start_after:end_after]]
    diff = "\n".join(line[:MAX_LINE] for line in lines)
    return diff if len(diff) <= MAX_DIFF else f"{diff[:MAX_DIFF]}…"


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")


def _line_number(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _read(workspace: Path, path: str) -> bytes:
    data = read_whole(workspace, path, "edited", MAX_WRITTEN)
    if is_binary(data):
        raise ToolInvalidInput("This is not a text file, so it cannot be edited.")
    return data
