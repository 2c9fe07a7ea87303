"""Writes a thread as text or JSON, one line at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TextIO

from bot.reports.transcript import Mask, Transcript, pieces
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


WRITERS = {"json": write_json, "jsonl": write_jsonl}


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
