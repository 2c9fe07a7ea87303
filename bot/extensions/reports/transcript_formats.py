"""Writes a thread as text, Markdown or JSON, one line at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TextIO

from bot.reports.safe_text import line, plain
from bot.reports.transcript import BOT, Mask, Transcript, pieces
from threads.log import LogEntry

INDENT = 10


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
        out.write(f"{comma}  {json.dumps(_value(transcript, entry))}")
        comma = ",\n"
    named = [{"name": transcript.mask(file.name), "size": file.size} for file in transcript.files]
    out.write(f'\n ],\n "files": {json.dumps(named)}\n}}\n')


def write_jsonl(out: TextIO, transcript: Transcript) -> None:
    """Write a JSON object a line, for each line of the log."""
    out.writelines(json.dumps(_value(transcript, entry)) + "\n" for entry in transcript.entries)


WRITERS = {"md": write_markdown, "json": write_json, "jsonl": write_jsonl}


def _value(transcript: Transcript, entry: LogEntry) -> object:
    """Return a line for JSON; a message comes with the tools that were used for it."""
    value = asdict(entry)
    del value["v"]
    if entry.kind == "message":
        value["tools"] = [asdict(one) for one in transcript.used.get(entry.message_id, ())]
    return mask_strings(value, transcript.mask)


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
