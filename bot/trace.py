"""What happened, told from disk: threads, one thread's history, and the story of one message.

Reads only, takes no lock, and so can be used beside a running bot. Whatever a person or a model wrote is shown with
its control characters made harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from pydantic import ValidationError

from threads.disk import PosixDisk
from threads.lines import scan
from threads.log import Entry, entries
from threads.records import Intent, Posted, Received, Record, Settled, Started, record_adapter

SHOWN = 300
"""Characters of a text in a story."""


@dataclass(frozen=True, slots=True)
class ThreadSummary:
    """A thread on disk. ``name`` is its id; ``at`` is the last line of its log."""

    name: str
    folder: Path
    messages: int
    at: str


def plain(text: str, limit: int | None = None) -> str:
    """Return *text* for a terminal: no control characters but newlines, and at most *limit* characters."""
    safe = "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
    return safe if limit is None or len(safe) <= limit else f"{safe[:limit]}… ({len(safe)} characters)"


def thread_folders(data: Path) -> Iterator[tuple[str, Path]]:
    """Return each thread's id and folder; names that were too long for a folder stay shortened."""
    for transport in sorted(path for path in (data / "threads").glob("*") if path.is_dir()):
        for folder in sorted(transport.iterdir()):
            parts = [unquote(part) for part in folder.name.split("~")]
            yield ":".join([unquote(transport.name), *parts]), folder


def list_threads(data: Path) -> list[ThreadSummary]:
    """Return all threads, the one last written to first."""
    disk = PosixDisk()
    found = []
    for name, folder in thread_folders(data):
        history = list(entries(disk, folder / "log.jsonl"))
        count = sum(entry.kind == "message" for entry in history)
        found.append(ThreadSummary(name, folder, count, history[-1].at if history else ""))
    return sorted(found, key=lambda summary: summary.at, reverse=True)


def find_thread(data: Path, wanted: str) -> Path | None:
    """Return the folder of a thread by its id, or by the last part of its id when only one has it."""
    last_part = []
    for name, folder in thread_folders(data):
        if wanted in (name, folder.name):
            return folder
        if name.rsplit(":", 1)[-1] == wanted:
            last_part.append(folder)
    return last_part[0] if len(last_part) == 1 else None


def story_of(folder: Path) -> Iterator[str]:
    """Return a thread's log as lines to read."""
    for entry in entries(PosixDisk(), folder / "log.jsonl"):
        match entry.kind:
            case "message":
                yield f"{entry.at}  {plain(entry.author)} [{plain(entry.message_id)}]\n{plain(entry.text)}\n"
            case "settled":
                by = f", with {plain(entry.by)}" if entry.by else ""
                yield f"{entry.at}  {plain(entry.message_id)} {entry.outcome}{by}\n"
            case _:
                yield f"{entry.at}  {entry.kind}\n{plain(entry.text)}\n"


def journal_records(data: Path) -> Iterator[Record]:
    """Return the readable records of the journal as it is now."""
    path = data / "journal.jsonl"
    if path.exists():
        for line in scan(path.read_bytes()).good:
            try:
                yield record_adapter().validate_json(line)
            except ValidationError:
                continue  # another version's line is told by the bot itself, at its start


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that ended as a dead letter, with what its person wrote."""

    at: str
    thread_id: str
    message_id: str
    author: str
    text: str


def dead_letters(data: Path) -> list[DeadLetter]:
    """Return the messages put aside, oldest first."""
    found = []
    for name, folder in thread_folders(data):
        history = list(entries(PosixDisk(), folder / "log.jsonl"))
        ends = {e.message_id: e.at for e in history if e.kind == "settled" and e.outcome == "dead_letter"}
        found += [
            DeadLetter(ends[e.message_id], name, e.message_id, e.author, e.text)
            for e in history
            if e.kind == "message" and e.message_id in ends
        ]
    return sorted(found, key=lambda letter: letter.at)


def why(data: Path, wanted: str) -> list[str]:
    """Return the story of the message with this id or reference; empty when nothing on disk knows it."""
    records = list(journal_records(data))
    about = {r.message_id for r in records if isinstance(r, Started) and r.correlation_id == wanted} | {
        wanted
    }
    story: dict[str, list[str]] = {}
    for record in records:
        if record.message_id in about:
            story.setdefault(f"{record.thread_id} {record.message_id}", []).append(_line_of(record))
    whole = {f"{r.thread_id} {r.message_id}" for r in records if isinstance(r, Received)}
    for name, folder in thread_folders(data):
        logged: dict[str, list[str]] = {}
        for entry in _entries_about(folder, about):
            logged.setdefault(f"{name} {entry.message_id}", []).append(_line_of_entry(entry))
        story.update({key: lines for key, lines in logged.items() if key not in whole})
    return [
        line
        for key, lines in story.items()
        for line in (
            f"Message {plain(key.split(' ', 1)[1])} in {plain(key.split(' ', 1)[0])}",
            *lines,
            _verdict(lines),
        )
    ]


def _entries_about(folder: Path, about: set[str]) -> list[Entry]:
    path = folder / "log.jsonl"
    if not path.exists() or not any(word.encode() in path.read_bytes() for word in about):
        return []
    found = list(entries(PosixDisk(), path))
    ids = about | {entry.message_id for entry in found if entry.correlation_id in about}
    return [entry for entry in found if entry.message_id in ids]


def _line_of(record: Record) -> str:
    match record:
        case Received():
            what = f"received from {plain(record.author.id)}: {plain(record.text, SHOWN)!r}"
        case Started():
            what = f"turn started, attempt {record.attempt} (ref {record.correlation_id})"
        case Intent():
            code = f", {record.code}" if record.code else ""
            what = f"about to post ({record.post}{code}): {plain(record.text, SHOWN)!r}"
        case Posted():
            what = f"posted as {plain(record.platform_id)}"
        case Settled():
            what = f"settled: {record.outcome}" + (f", with message {plain(record.by)}" if record.by else "")
    return f"  {record.at}  {what}"


def _line_of_entry(entry: Entry) -> str:
    match entry.kind:
        case "message":
            what = f"received from {plain(entry.author)}: {plain(entry.text, SHOWN)!r}"
        case "settled":
            ref = f" (ref {entry.correlation_id})" if entry.correlation_id else ""
            what = (
                f"settled: {entry.outcome}" + (f", with message {plain(entry.by)}" if entry.by else "") + ref
            )
        case _:
            what = f"posted as {plain(entry.platform_id)} ({entry.kind}): {plain(entry.text, SHOWN)!r}"
    return f"  {entry.at}  {what}"


def _verdict(lines: list[str]) -> str:
    if any("settled: " in line for line in lines):
        return "  Its outcome is final."
    return "  It has no outcome yet: it is waiting or running, or will be taken up at the next start."
