"""What the settings let go: the oldest first, as a list of single steps. Nothing here changes anything.

| what         | a step                                             | never                           |
|--------------|----------------------------------------------------|---------------------------------|
| threads      | one part of one quiet thread                       | with something open (`open_in`) |
| dead letters | those of one thread: their lines leave its history | the same                        |
| audit        | the file of one day                                |                                 |
| spending     | one file of the ledger: its calls become sums      | the newest file                 |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pydantic_core import from_json

from bot.budget.ledger import names_in, parts
from bot.extensions.retention.settings import Retention
from bot.extensions.retention.thread_parts import PARTS, Part, files_in, size_of, thread_folders
from bot.reports.dead_letters import dead_letters
from bot.reports.files import FileReader
from bot.reports.line_reader import Damage
from bot.reports.thread import journal
from bot.store.reader import Kind, Reader, SharedReader
from threads.journal.records import Received, Settled
from threads.model import ThreadId
from threads.store.disk import PosixDisk, read_or_empty

DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to forget: how many ``count`` it is of its ``kind``, and how many bytes.

    The kind of a part of a thread is the name of that part; nothing was said there since ``quiet_since``. ``path`` is
    a file of another kind, ``ids`` are messages, and ``until`` is the day after a month in a store of many workers.
    """

    kind: str
    count: int
    bytes: int
    thread: ThreadId | None = None
    quiet_since: datetime | None = None
    path: Path = Path()
    ids: frozenset[str] = frozenset()
    until: str = ""


def steps(data: Path, rules: Retention, now: datetime) -> Iterator[Step]:
    """Return what is due in a data folder, thread by thread. Blocking. Raises OSError."""
    reader = FileReader(data)
    is_open = open_in(reader, lambda name: content(data / f"{name}.json"))
    for folder in thread_folders(data):
        for part in _due(folder.thread, now - folder.quiet_since, rules, is_open):
            if files := files_in(folder.path, part):
                yield Step(part, len(files), size_of(files), folder.thread, folder.quiet_since)
    yield from _dead_letters(reader, is_open, rules, now)
    if rules.audit_days:
        last = (now - timedelta(days=rules.audit_days)).date().isoformat()
        for path in sorted((data / "audit").glob("????-??-??.jsonl*")):
            if path.name[:10] < last:
                yield Step("audit", 1, path.stat().st_size, path=path)
    if rules.spending_days:
        yield from _spending(data / "usage", now - timedelta(days=rules.spending_days))


def shared_steps(reader: SharedReader, rules: Retention, now: datetime) -> Iterator[Step]:
    """Return what is due in a store that many workers share. Blocking. Raises OSError."""
    values = dict(reader.values())
    # A thread that is owed something is not quiet.
    is_open = asked_in(lambda name: values.get(name, "").encode())
    for name, since in reader.quiet_threads(now - timedelta(days=1)):
        thread = ThreadId.parse(name)
        if due := _due(thread, now - since, rules, is_open):
            sizes = reader.sizes(name)
            for part in due:
                if part in sizes:
                    yield Step(part, *sizes[part], thread, since)
    yield from _dead_letters(reader, is_open, rules, now)
    kept: dict[Kind, int | None] = {"audit": rules.audit_days, "spending": rules.spending_days}
    for kind, days in kept.items():
        if days is not None:
            for until, count, size in reader.months(kind, (now - timedelta(days=days)).date().isoformat()):
                yield Step(kind, count, size, until=until)


def _due(thread: ThreadId, age: timedelta, rules: Retention, is_open: Collection[str]) -> list[Part]:
    """Return the parts of a thread that are due; none while something is open in it."""
    kept = rules.of(thread)
    days = {part: getattr(kept, f"{part}_days") for part in PARTS if str(thread) not in is_open}
    return [part for part, most in days.items() if most is not None and age >= timedelta(days=most)]


def _dead_letters(
    reader: Reader, is_open: Collection[str], rules: Retention, now: datetime
) -> Iterator[Step]:
    if not rules.dead_letters_days:
        return
    old, before = dict[str, list[str]](), now - timedelta(days=rules.dead_letters_days)
    for letter in dead_letters(reader):
        if letter.thread_id not in is_open and datetime.fromisoformat(letter.at) < before:
            old.setdefault(letter.thread_id, []).append(letter.message_id)
    for name, ids in old.items():
        yield Step(DEAD_LETTERS, len(ids), 0, ThreadId.parse(name), ids=frozenset(ids))


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


def open_in(reader: Reader, value_of: Callable[[str], bytes]) -> frozenset[str]:
    """Return the threads with a message without an outcome, an open question, or a schedule. Raises OSError."""
    return asked_in(value_of).union(one.thread_id for one in owed(reader))


def asked_in(value_of: Callable[[str], bytes]) -> frozenset[str]:
    """Return the threads with an open question or a schedule. Raises OSError.

    *value_of* returns a small value's JSON by its name; one that is missing is blank.
    """
    asked = [
        one["thread_id"]
        for name in ("approvals", "questions")
        for one in _members(value_of(name), "asked")
        if one.get("state") == "open"
    ]
    scheduled = [one["thread"] for one in _members(value_of("schedules"), "schedules")]
    return frozenset([*asked, *scheduled])


def owed(reader: Reader) -> list[Received]:
    """Return the messages without an outcome. Raises OSError."""
    found: dict[tuple[str, str], Received] = {}
    for record in journal(reader, Damage()):
        match record:
            case Received():
                found[record.thread_id, record.message_id] = record
            case Settled():
                found.pop((record.thread_id, record.message_id), None)
            case _:
                pass
    return [*found.values()]


def content(path: Path) -> bytes:
    """Return a file's content, blank if there is none. Blocking. Raises OSError."""
    return read_or_empty(PosixDisk(), path)


def _members(content: bytes, field: str) -> Sequence[dict[str, str]]:
    """Return the members of a field of a small value; one that is missing or damaged has none."""
    try:
        found = from_json(content)[field]
    except (ValueError, KeyError):
        return ()
    return [*(found.values() if isinstance(found, dict) else found)]
