"""Writes a thread for people, as text, Markdown or JSON, one line at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from bot.admin.reports.thread import ToolUse, as_value
from bot.admin.reports.workspace_files import WorkspaceFile
from bot.admin.safe_text import line, plain
from threads.log import Entry

BOT = "Threadfast"
SHOWN_ARGUMENTS = 100

Mask = Callable[[str], str]
"""Hides secrets in a text."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A thread: its log's lines, the tools used for each message, its files, and what hides secrets in all of it."""

    thread: str
    entries: Iterable[Entry]
    used: Mapping[str, Sequence[ToolUse]]
    files: Sequence[WorkspaceFile]
    mask: Mask

    def value(self, entry: Entry) -> object:
        """Return a line for JSON."""
        return mask_strings(as_value(entry, self.used.get(entry.message_id, ())), self.mask)


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a transcript: a ``head`` (who and when), or ``text`` below it. ``style`` is rich's."""

    text: str
    style: str = ""
    indent: int = 0


def pieces(transcript: Transcript) -> Iterator[Piece]:
    """Return a thread's lines to be read on a screen; days are printed when they change."""
    day = ""
    for entry in transcript.entries:
        if entry.at[:10] != day:
            day = entry.at[:10]
            yield Piece(f"── {day} (UTC) ──", "dim")
        at, message_id = entry.at[11:19], plain(entry.message_id)
        match entry.kind:
            case "message":
                yield Piece(f"{at}  {plain(entry.author) or 'somebody'}  [{message_id}]", "bold cyan")
                yield Piece(transcript.mask(plain(entry.text)), indent=10)
                for one in transcript.used.get(entry.message_id, ()):
                    yield Piece(
                        f"· {_tool(one, transcript.mask)}", "yellow" if one.failed else "dim", indent=10
                    )
            case "settled":
                yield Piece(_end(entry), "dim" if entry.outcome in ("answered", "merged") else "yellow", 10)
                yield Piece("")
            case _:
                style = {"reply": "bold green", "error": "bold red"}.get(entry.kind, "bold yellow")
                yield Piece(f"{at}  {BOT}{'' if entry.kind == 'reply' else f' ({entry.kind})'}", style)
                yield Piece(transcript.mask(plain(entry.text)), indent=10)


def _tool(one: ToolUse, mask: Mask) -> str:
    return f"{plain(one.tool)} {line(mask(one.arguments), SHOWN_ARGUMENTS)}{', failed' if one.failed else ''}"


def _end(entry: Entry) -> str:
    by = f" with {plain(entry.by)}" if entry.by else ""
    code = f", {entry.code}" if entry.code else ""
    ref = f"  (ref {entry.correlation_id})" if entry.correlation_id else ""
    return f"{entry.outcome}{by}{code}{ref}"


def write_markdown(out: TextIO, transcript: Transcript) -> None:
    """Write the conversation with authors, times and outcomes, and the names of its files, as Markdown."""
    out.write(f"# {plain(transcript.thread)}\n\nA conversation with {BOT}. Times are UTC.\n")
    day = ""
    for entry in transcript.entries:
        if entry.at[:10] != day:
            day = entry.at[:10]
            out.write(f"\n## {day}\n")
        at = entry.at[11:19]
        match entry.kind:
            case "message":
                out.write(
                    f"\n**{_bare(entry.author) or 'somebody'}**, {at} (`{_bare(entry.message_id)}`)\n\n"
                )
                out.write(_quoted(transcript.mask(plain(entry.text))))
                out.writelines(
                    f"\n- used `{_bare(_tool(one, transcript.mask))}`\n"
                    for one in transcript.used.get(entry.message_id, ())
                )
            case "settled":
                out.write(f"\n*{_bare(_end(entry))}*\n")
            case _:
                kind = "" if entry.kind == "reply" else f" ({entry.kind})"
                out.write(f"\n**{BOT}**{kind}, {at}\n\n{_quoted(transcript.mask(plain(entry.text)))}")
    if transcript.files:
        out.write("\n## Files\n\n")
    out.writelines(f"- `{_bare(file.name)}`, {file.size:,} bytes\n" for file in transcript.files)


def _bare(text: str) -> str:
    return line(text, 300).replace("`", "'")


def _quoted(text: str) -> str:
    return "".join(f"> {each}".rstrip() + "\n" for each in text.split("\n"))


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
