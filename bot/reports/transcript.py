"""A thread for people, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bot.reports.safe_text import flat, line, plain
from bot.reports.thread import ToolUse
from bot.store.reader import WorkspaceFile
from threads.log import LogEntry
from threads.model import with_quoted

BOT = "Threadfast"
SHOWN_ARGUMENTS = 100
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
                head += f" in place of [{plain(entry.replaces)}]" if entry.replaces else ""
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
