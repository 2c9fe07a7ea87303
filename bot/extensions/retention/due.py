"""What the settings let go: the oldest first, as a list of single steps. Nothing here changes anything.

| what         | a step                                             | never                           |
|--------------|----------------------------------------------------|---------------------------------|
| threads      | one part of one quiet thread                       | with something open (`open_in`) |
| dead letters | those of one thread: their lines leave its history | the same                        |
| audit        | the file of one day                                |                                 |
| spending     | one file of the ledger: its calls become sums      | the newest file                 |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pydantic_core import from_json

from bot.budget.ledger import names_in, parts
from bot.extensions.retention.settings import Retention
from bot.extensions.retention.thread_parts import (
    PARTS,
    Part,
    ThreadFolder,
    files_in,
    quiet_since,
    size_of,
    thread_folders,
)
from bot.reports.dead_letters import dead_letters
from bot.reports.files import FileReader
from bot.reports.line_reader import Damage
from bot.reports.thread import journal
from bot.store.reader import Reader
from threads.journal.records import Received, Settled
from threads.model import ThreadId


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to forget: how many ``count`` it is of its ``kind``, and how many bytes.

    ``folder`` is that of a thread; ``path`` is the file of another kind, and ``ids`` are messages.
    """

    kind: str
    count: int
    bytes: int
    folder: ThreadFolder | None = None
    part: Part | None = None
    path: Path = Path()
    ids: frozenset[str] = frozenset()


def steps(data: Path, rules: Retention, now: datetime) -> Iterator[Step]:
    """Return what is due, thread by thread. Blocking. Raises OSError."""
    reader = FileReader(data)
    is_open = open_in(data, reader)
    for folder in thread_folders(data):
        if str(folder.thread) not in is_open:
            yield from _of_thread(folder, rules, now)
    if rules.dead_letters_days:
        yield from _dead_letters(reader, is_open, now - timedelta(days=rules.dead_letters_days))
    if rules.audit_days:
        last = (now - timedelta(days=rules.audit_days)).date().isoformat()
        for path in sorted((data / "audit").glob("????-??-??.jsonl*")):
            if path.name[:10] < last:
                yield Step("audit", 1, path.stat().st_size, path=path)
    if rules.spending_days:
        yield from _spending(data / "usage", now - timedelta(days=rules.spending_days))


def _of_thread(folder: ThreadFolder, rules: Retention, now: datetime) -> Iterator[Step]:
    kept, age = rules.of(folder.thread), now - folder.quiet_since
    for part in PARTS:
        days = getattr(kept, f"{part}_days")
        if days is not None and age >= timedelta(days=days) and (files := files_in(folder.path, part)):
            yield Step(part, len(files), size_of(files), folder, part)


def _dead_letters(reader: FileReader, is_open: Collection[str], before: datetime) -> Iterator[Step]:
    old: dict[str, list[str]] = {}
    for letter in dead_letters(reader):
        if letter.thread_id not in is_open and datetime.fromisoformat(letter.at) < before:
            old.setdefault(letter.thread_id, []).append(letter.message_id)
    for name, ids in old.items():
        thread = ThreadId.parse(name)
        for found in reader.find(name):
            folder = ThreadFolder(thread, found.path, quiet_since(found.path))
            yield Step("dead letters", len(ids), 0, folder, ids=frozenset(ids))


def _spending(folder: Path, before: datetime) -> Iterator[Step]:
    last = f"{before:%Y-%m}"
    for part in parts(names_in(folder))[:-1]:
        path = folder / part.name
        if part.month < last and (calls := _single_calls(path)):
            yield Step("spending", calls, path.stat().st_size, path=path)


def _single_calls(path: Path) -> int:
    """Return how many lines of a file tell of one turn."""
    with path.open("rb") as file:
        return sum(b'"turn":"' in line and b'"turn":""' not in line for line in file)


def open_in(data: Path, reader: Reader) -> frozenset[str]:
    """Return the threads with a message without an outcome, an open question, or a schedule. Raises OSError."""
    owed: dict[tuple[str, str], str] = {}
    for record in journal(reader, Damage()):
        match record:
            case Received():
                owed[record.thread_id, record.message_id] = record.thread_id
            case Settled():
                owed.pop((record.thread_id, record.message_id), None)
            case _:
                pass
    asked = [
        one["thread_id"]
        for name in ("approvals.json", "questions.json")
        for one in _members(data / name, "asked")
        if one.get("state") == "open"
    ]
    return frozenset(
        [*owed.values(), *asked, *(one["thread"] for one in _members(data / "schedules.json", "schedules"))]
    )


def _members(path: Path, field: str) -> Sequence[dict[str, str]]:
    """Return the members of a field of a small state; a file that is missing or damaged has none."""
    try:
        found = from_json(path.read_bytes())[field]
    except (FileNotFoundError, ValueError, KeyError):
        return ()
    return [*(found.values() if isinstance(found, dict) else found)]
