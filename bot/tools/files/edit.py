"""Changing a part of a file by exact replacement: what is replaced must be there just as the model wrote it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.ports.errors import ToolInvalidInput
from bot.ports.tool import Arguments, ToolContext, ToolOutput

from .file_type import is_binary
from .read import PathArguments
from .resolve_beneath import FILE, beneath, named, origin, regular
from .write import MAX_WRITTEN, ScrubbedText, Writer

CONTEXT = 2
"""Lines that a diff shows around a change."""

MAX_HUNKS = 3
MAX_HUNK = 200
"""Lines of one changed place that are compared."""

MAX_DIFF = 4_000
MAX_LINE = 200
"""Characters of a line that is shown or compared."""

MAX_LOOKED = 1_000_000
"""Bytes of a file in which lines are sought that look like one that was not found."""

MAX_COMPARED = 1_000
"""Lines that are compared with one that was not found."""

MAX_PLACES = 20


class EditArguments(PathArguments):
    path: str = Field(max_length=4096, description="File to edit, relative to the workspace")
    old: ScrubbedText = Field(
        min_length=1, max_length=MAX_WRITTEN, description="Text to replace, exactly as it is there"
    )
    new: ScrubbedText = Field(max_length=MAX_WRITTEN, description="Text to put in its place")
    all: bool = Field(default=False, description="Replace it everywhere; else it must occur just once")

    def always(self) -> str:
        """Return that every file is meant: there is nothing here but this thread's own workspace."""
        return "*"


@dataclass(frozen=True, slots=True)
class Edit:
    """A file's new content, how often the text was replaced, at which line first, and what that changed."""

    data: bytes
    count: int
    line: int
    diff: str


@dataclass(frozen=True)
class EditFile:
    writer: Writer
    name: ClassVar[str] = "edit_file"
    description: ClassVar[str] = (
        "Replace a text in a file of this thread's workspace by another. It must occur exactly once, so give enough"
        " of what is around it, or set all."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = EditArguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        assert isinstance(arguments, EditArguments)
        async with self.writer.alone(context.workspace):
            return await self.writer.offload(self._edit, arguments, context.workspace)

    def _edit(self, asked: EditArguments, workspace: Path) -> ToolOutput:
        data, outside = _read(workspace, asked.path), origin(workspace)
        try:
            edit = replace_text(data, asked.old.encode(), asked.new.encode(), everywhere=asked.all)
        except ToolInvalidInput as error:
            error.origin = outside
            raise
        self.writer.put(workspace, asked.path, edit.data)
        path = named(asked.path)
        return ToolOutput(
            {"edited": path, "replaced": edit.count, "line": edit.line, "diff": edit.diff}, origin=outside
        )


def replace_text(data: bytes, old: bytes, new: bytes, *, everywhere: bool) -> Edit:
    """Replace *old* by *new*; raises `ToolInvalidInput`. Where lines end in CRLF, they do so in the texts too."""
    if old not in data and b"\r\n" in data and b"\r" not in old:
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    places = list(islice(_places(data, old, 1), MAX_PLACES + 1))
    if not places:
        raise ToolInvalidInput(
            "The text does not occur in the file.",
            suggestion="Read the file and copy the text exactly, with all its spaces.",
            partial={"nearest": list[JsonValue](_nearest(data, old))},
        )
    if len(places) > 1 and not everywhere:
        times = f"{len(places)} times" if len(places) <= MAX_PLACES else f"more than {MAX_PLACES} times"
        raise ToolInvalidInput(
            f"The text occurs {times} in the file.",
            suggestion="Give more of what is around it, or set all to replace it everywhere.",
            partial={"lines": [_line(data, place) for place in places[:MAX_PLACES]]},
        )
    count = data.count(old)
    if len(data) + count * (len(new) - len(old)) > MAX_WRITTEN:
        raise ToolInvalidInput(f"The file would be larger than {MAX_WRITTEN // 1_000_000} MB.")
    return Edit(data.replace(old, new), count, _line(data, places[0]), _diff(data, old, new))


def _places(data: bytes, text: bytes, step: int) -> Iterator[int]:
    """Give where *text* occurs; with a *step* of 1 also where it overlaps itself."""
    at = data.find(text)
    while at >= 0:
        yield at
        at = data.find(text, at + step)


def _diff(data: bytes, old: bytes, new: bytes) -> str:
    """Return the first lines that change, each with what it becomes and what is around it."""
    hunks = [_hunk(data, first, last, old, new) for first, last in _spans(data, old)]
    shown = "\n".join(hunks)
    return shown if len(shown) <= MAX_DIFF else f"{shown[:MAX_DIFF]}…"


def _spans(data: bytes, old: bytes) -> list[tuple[int, int]]:
    """Return from where to where lines change, of very long ones a part; places on one line are one span."""
    spans: list[tuple[int, int]] = []
    for place in islice(_places(data, old, len(old)), MAX_PLACES):
        start, end = max(0, place - MAX_DIFF), place + len(old) + MAX_DIFF
        first = data.rfind(b"\n", start, place) + 1 or start
        last = data.find(b"\n", place + len(old), end)
        last = min(len(data), end) if last < 0 else last
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], last)
        elif len(spans) == MAX_HUNKS:
            break
        else:
            spans.append((first, last))
    return spans


def _hunk(data: bytes, first: int, last: int, old: bytes, new: bytes) -> str:
    before = _lines(data[first:last])
    after = _lines(data[first:last].replace(old, new))
    lines = [f"@@ line {_line(data, first)} @@"]
    lines += [f" {line}" for line in _lines(data[max(0, first - MAX_DIFF) : first])[:-1][-CONTEXT:]]
    matcher = difflib.SequenceMatcher(None, before[:MAX_HUNK], after[:MAX_HUNK], autojunk=False)
    for tag, start, end, start_after, end_after in matcher.get_opcodes():
        if tag == "equal":
            lines += [f" {line}" for line in before[start:end]]
        else:
            lines += [f"-{line}" for line in before[start:end]]
            lines += [f"+{line}" for line in after[start_after:end_after]]
    lines += [f" {line}" for line in _lines(data[last : last + MAX_DIFF])[1 : CONTEXT + 1]]
    return "\n".join(line[:MAX_LINE] for line in lines)


def _nearest(data: bytes, old: bytes) -> list[str]:
    """Return the lines, with their numbers, that look most like the first one of *old*."""
    wanted = next((" ".join(line.split()) for line in _lines(old) if line.strip()), "")[:MAX_LINE]
    shown = _lines(data[:MAX_LOOKED])
    lines = [" ".join(line[:MAX_LINE].split()) for line in shown]
    near = difflib.get_close_matches(wanted, [line for line in lines if line][:MAX_COMPARED], n=3)
    found = [number for number, line in enumerate(lines) if wanted and line == wanted]
    found += [lines.index(line) for line in near if line != wanted]
    return [f"{number + 1}: {shown[number][:MAX_LINE]}" for number in found[:3]]


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def _read(workspace: Path, path: str) -> bytes:
    with beneath(workspace, path, FILE) as fd:
        regular(fd, "edited")
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(MAX_WRITTEN + 1)
    if len(data) > MAX_WRITTEN:
        raise ToolInvalidInput(f"The file is larger than {MAX_WRITTEN // 1_000_000} MB.")
    if is_binary(data):
        raise ToolInvalidInput("This is no text file, so it cannot be edited.")
    return data
