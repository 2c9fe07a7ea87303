"""Reads one thread from its files: messages and outcomes, tool calls, pending messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from pydantic_core import from_json, to_json

from bot.admin.reports.line_reader import Damage, read_from, records
from bot.admin.reports.thread_folders import Folder
from threads.journal.records import Received, Record, Settled, record_adapter
from threads.log import Entry, entry_adapter
from threads.model import ToolCall, ToolResult
from threads.store.context import line_adapter

BLOCK = 1 << 20
END = 1 << 16
"""Bytes of a log's end that hold its last message, most of the time."""
FURTHER = 16
"""The factor by which the search is enlarged if they do not."""

LOOKED_AT = 3
"""Messages at a log's end that are read for the last one: its line may be damaged."""

_MESSAGE = b'"kind":"message"'
"""As it stands in a log, and in no text: a quotation mark is written ``\\"`` there."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A thread in one line: how many ``messages`` it has, and the last one with how it ended."""

    thread: str
    at: str = ""
    messages: int = 0
    author: str = ""
    text: str = ""
    outcome: str = ""


def summary(folder: Folder) -> Summary:
    """Return what the thread's log says; only its end is understood, the rest is counted.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    last, outcome, at = None, "", ""
    for entry in entries(folder, Damage(), last=LOOKED_AT):
        at = entry.at
        match entry.kind:
            case "message":
                last, outcome = entry, ""
            case "settled":
                outcome = entry.outcome
            case _:
                pass
    author, text = (last.author, last.text) if last else ("", "")
    said = _count(folder.log) if at else 0
    at = at or datetime.fromtimestamp(folder.changed_at, UTC).isoformat(timespec="milliseconds")
    return Summary(folder.name, at, said, author, text, outcome)


def _count(log: Path) -> int:
    found, end = 0, b""
    with log.open("rb") as file:
        while block := file.read(BLOCK):
            found += (end + block).count(_MESSAGE)
            end = block[-len(_MESSAGE) + 1 :]
    return found


def entries(
    folder: Folder,
    damage: Damage,
    last: int | None = None,
    having: Sequence[bytes] = (),
    wait: Callable[[], None] | None = None,
) -> Iterator[Entry]:
    """Return the lines of a thread's log, those of its last messages, or those that hold one of these pieces.

    With *wait* it never ends: whenever there is no more, it waits and looks again.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    try:
        file = folder.log.open("rb")
    except FileNotFoundError:
        return
    with file:
        if last is not None:
            _go_to_last(file, last)
        yield from read_from(file, entry_adapter(), damage, having)
        while wait:
            wait()
            yield from read_from(file, entry_adapter(), damage, having)


def _go_to_last(file: BinaryIO, messages: int) -> None:
    """Move to where the last so many messages begin, reading from the end in ever larger pieces."""
    size, length = file.seek(0, os.SEEK_END), END
    while True:
        start = max(0, size - length)
        file.seek(start)
        piece = file.read(size - start)
        if start == 0 or piece.count(_MESSAGE) >= messages:
            break
        length *= FURTHER
    at = len(piece)
    for _ in range(messages):
        if (found := piece.rfind(_MESSAGE, 0, at)) < 0:
            break
        at = found
    file.seek(start + piece.rfind(b"\n", 0, at) + 1 if messages else size)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that was used for a message, with its arguments as JSON. ``at`` is when (UTC, ISO 8601), "" if unknown.

    ``call`` is the id of the call, ``reason`` what the model read of a failure.
    """

    tool: str
    arguments: str
    failed: bool = False
    at: str = ""
    call: str = ""
    reason: str = ""


def tools_used(folder: Folder) -> dict[str, list[ToolUse]]:
    """Return the tool calls of each message, as far as the conversation still holds them.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    found: dict[str, list[ToolUse]] = {}
    for name in ("context.old.jsonl", "context.jsonl"):
        about, open_ = "", dict[str, tuple[str, int]]()
        for line in records(folder.path / name, line_adapter(), Damage()):
            message = line.message
            about = message.source or about if message.role == "user" else about
            for block in message.blocks:
                used = found.setdefault(about, [])
                match block:
                    case ToolCall():
                        open_[block.id] = about, len(used)
                        arguments = block.malformed or _json(block.arguments)
                        used.append(ToolUse(block.name, arguments, at=message.at, call=block.id))
                    case ToolResult(is_error=True) if block.call_id in open_:
                        of, at = open_[block.call_id]
                        found[of][at] = replace(found[of][at], failed=True, reason=_reason(block.content))
                    case _:
                        pass
    return {about: list(dict.fromkeys(used)) for about, used in found.items() if used}


def _reason(content: str) -> str:
    """Return why a call failed, from the result that the model read."""
    try:
        parsed = from_json(content)
    except ValueError:
        return content
    match parsed:
        case {"error": {"message": str(message)}}:
            return message
        case _:
            return content


def _json(arguments: object) -> str:
    return to_json(arguments).decode()


def journal(data: Path, damage: Damage, having: tuple[str, ...] = ()) -> Iterator[Record]:
    """Return the journal's records, of all lines or of those with one of these words in them.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    yield from records(data / "journal.jsonl", record_adapter(), damage, tuple(map(in_json, having)))


def in_json(word: str) -> bytes:
    """Return *word* as it stands inside a JSON string."""
    return to_json(word.encode("utf-8", "replace").decode())[1:-1]


def waiting(data: Path, thread: str) -> list[Received]:
    """Return the thread's messages that have no outcome yet, oldest first. Raises as `journal`."""
    found: dict[str, Received] = {}
    for record in journal(data, Damage(), (thread,)):
        match record:
            case Received() if record.thread_id == thread:
                found[record.message_id] = record
            case Settled() if record.thread_id == thread:
                found.pop(record.message_id, None)
            case _:
                pass
    return list(found.values())


def as_value(entry: Entry, used: Sequence[ToolUse]) -> dict[str, object]:
    """Return a line for JSON; a message comes with the tools that were *used* for it."""
    value = asdict(entry)
    del value["v"]
    if entry.kind == "message":
        value["tools"] = [asdict(one) for one in used]
    return value
