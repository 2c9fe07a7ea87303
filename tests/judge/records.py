"""The bytes of the bot's files, the outcomes in them and who speaks for a message, as pure functions.

A line of the data folder is JSON whose last field ``crc`` is the CRC-32, as eight hex digits, of all bytes before its
comma. The judges read it without the bot's own reader, which may be as wrong as its writer.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Fields = dict[str, Any]

REPEAT = "(this may be a repeat)"
NOT_SAVED = "(I could not save our conversation to my disk; I will try again with your next message.)"
COVERED = {"merged", "stopped", "refused", "failed"}
OUTCOMES = COVERED | {"answered", "withdrawn", "dead_letter", "undelivered"}


def key_of(thread: str, message_id: str) -> str:
    return ":".join([*thread.split(":", 3)[:3], message_id])


def intact(line: bytes) -> bool:
    """Check the checksum of one line."""
    body, comma, tail = line.rpartition(b",")
    return bool(comma) and tail == b'"crc":"%08x"}' % zlib.crc32(body)


def read_lines(data: bytes) -> Iterator[Fields | None]:
    """Yield each line's record, None for a torn or damaged line."""
    for line in filter(None, data.split(b"\n")):
        yield json.loads(line) if intact(line) else None


def speakers(end: Fields, ends: Mapping[str, Fields]) -> Iterator[tuple[str, Fields]]:
    """Follow ``by`` from one outcome to the next. The outcome is empty where there is none; a cycle ends it."""
    seen = set[str]()
    while end.get("by"):
        key = key_of(end["thread_id"], end["by"])
        if key in seen:
            return
        seen.add(key)
        end = ends.get(key, {})
        yield key, end


def repeated(values: Iterable[Any]) -> dict[Any, int]:
    """Return how often each value occurs that is there more than once; empty values do not count."""
    return {value: times for value, times in Counter(values).items() if value and times > 1}


def scrubbed(text: str) -> str:
    """Replace half characters as the bot does."""
    return text.encode("utf-8", "replace").decode()
