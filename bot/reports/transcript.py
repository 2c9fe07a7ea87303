"""Writes a thread for people, as text, Markdown or JSON, one line at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

from bot.reports.safe_text import flat, line, plain
from bot.reports.thread import ToolUse, as_value
from bot.store.reader import WorkspaceFile
from threads.log import LogEntry
from threads.model import with_quoted

BOT = "Threadfast"
SHOWN_ARGUMENTS = 100
INDENT = 10
GOOD = frozenset({"answered", "merged"})
"""The outcomes that need no attention."""

Mask = Callable[[str], str]
"""Hides secrets in a text."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A thread: its log's lines, the tools used for each message, its files, and what hides secrets in all of it."""

    thread: str
    entries: Iterable[LogEntry]
    used: Mapping[str, Sequence[ToolUse]]
    files: Sequence[WorkspaceFile]
    mask: Mask

    def value(self, entry: LogEntry) -> object:
        """Return a line for JSON."""
        return mask_strings(as_value(entry, self.used.get(entry.message_id, ())), self.mask)


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a transcript: a day, a head (who and when), or what belongs to the last head."""

    kind: Literal["day", "head", "text", "tool", "outcome"]
    text: str
    style: str = ""
    """For a terminal, as rich has it."""
    message_id: str = ""
    """Of a person's message, in its head."""


def pieces(transcript: Transcript) -> Iterator[Piece]:
    """Yield the pieces of a thread in order; a day comes when it changes."""
    day = ""
    for entry in transcript.entries:
        if entry.at[:10] != day:
            day = entry.at[:10]
            yield Piece("day", day, "dim")
        head, style = f"{entry.at[11:19]}  {BOT}", "bold yellow"
        match entry.kind:
            case "settled":
                yield Piece("outcome", _outcome(entry), "dim" if entry.outcome in GOOD else "yellow")
                continue
            case "message":
                head = f"{entry.at[11:19]}  {plain(entry.author) or 'somebody'}  [{plain(entry.message_id)}]"
                style = "bold cyan"
            case "reply":
                style = "bold green"
            case kind:
                head += f" ({kind})"
                style = "bold red" if kind == "error" else style
        yield Piece("head", head, style, entry.message_id if entry.kind == "message" else "")
        yield Piece("text", transcript.mask(plain(with_quoted(entry.text, entry.quoted))))
        if entry.closed:
            yield Piece("outcome", flat(entry.closed.decision(entry.closed.by)), "dim")
        for one in transcript.used.get(entry.message_id, ()) if entry.kind == "message" else ():
            arguments = line(transcript.mask(one.arguments), SHOWN_ARGUMENTS)
            failed, style = (", failed", "yellow") if one.failed else ("", "dim")
            yield Piece("tool", f"{plain(one.tool)} {arguments}{failed}", style)


def _outcome(entry: LogEntry) -> str:
    by = f" with {plain(entry.by)}" if entry.by else ""
    code = f", {entry.code}" if entry.code else ""
    ref = f"  (ref {entry.correlation_id})" if entry.correlation_id else ""
    return f"{entry.outcome}{by}{code}{ref}"


def on_screen(transcript: Transcript) -> Iterator[tuple[str, str, int]]:
    """Yield texts to print one below the other, each with its style and its indent."""
    for piece in pieces(transcript):
        match piece.kind:
            case "day":
                yield f"── {piece.text} (UTC) ──", piece.style, 0
            case "head":
                yield piece.text, piece.style, 0
            case "outcome":
                yield piece.text, piece.style, INDENT
                yield "", "", 0
            case kind:
                yield f"· {piece.text}" if kind == "tool" else piece.text, piece.style, INDENT


def write_markdown(out: TextIO, transcript: Transcript) -> None:
    """Write the conversation with authors, times and outcomes, and the names of its files, as Markdown."""
    out.write(f"# {plain(transcript.thread)}\n\nA conversation with {BOT}. Times are UTC.\n")
    for piece in pieces(transcript):
        match piece.kind:
            case "day":
                out.write(f"\n## {piece.text}\n")
            case "head":
                out.write(f"\n**{_bare(piece.text)}**\n\n")
            case "text":
                out.writelines(f"> {each}".rstrip() + "\n" for each in piece.text.split("\n"))
            case "tool":
                out.write(f"\n- used `{_bare(piece.text)}`\n")
            case "outcome":
                out.write(f"\n*{_bare(piece.text)}*\n")
    if transcript.files:
        out.write("\n## Files\n\n")
    out.writelines(f"- `{_bare(file.name)}`, {file.size:,} bytes\n" for file in transcript.files)


def _bare(text: str) -> str:
    return line(text, 300).replace("`", "'")


def write_json(out: TextIO, transcript: Transcript) -> None:
    """Write one JSON document, an entry at a time."""
    out.write(f'{{\n "thread": {json.dumps(transcript.thread)},\n "entries": [')
    comma = "\n"
    for entry in transcript.entries:
        out.write(f"{comma}  {json.dumps(transcript.value(entry))}")
        comma = ",\n"
    named = [{"name": transcript.mask(file.name), "size": file.size} for file in transcript.files]
    out.write(f'\n ],\n "files": {json.dumps(named)}\n}}\n')


def write_jsonl(out: TextIO, transcript: Transcript) -> None:
    """Write a JSON object a line, for each line of the log."""
    out.writelines(json.dumps(transcript.value(entry)) + "\n" for entry in transcript.entries)


WRITERS = {"md": write_markdown, "json": write_json, "jsonl": write_jsonl}


def mask_strings(value: object, mask: Mask) -> object:
    """Return a JSON value with every text in it masked."""
    match value:
        case str():
            return mask(value)
        case dict():
            return {name: mask_strings(each, mask) for name, each in value.items()}
        case list() | tuple():
            return [mask_strings(each, mask) for each in value]
        case _:
            return value
