"""Moves a store from files to PostgreSQL and back: every line unchanged, everything or nothing.

Skills and the identity are not moved: an admin writes them, and each worker has them in its data folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain, groupby
from pathlib import Path

import anyio.to_thread
from pydantic_core import from_json

from bot.budget.budgets import Budgets, Total, record_adapter
from bot.budget.ledger import Part, names_in, parts
from bot.extensions.postgres.local_files import NewFile, StoredFile, read_parts, scan
from bot.extensions.postgres.memory import decode_text, encode_text
from bot.extensions.postgres.moving import CONTEXT, JOURNAL, Row, Tables, Unmovable, alone, place_of
from bot.extensions.postgres.reading import ACCOUNTS, PostgresReader
from bot.reports.files import FileReader, Folder
from bot.reports.line_reader import Damage, lines_of, records
from bot.store.data_version import mark_moved, prepare
from bot.store.layout import KINDS
from threads.journal.journal import FileJournal
from threads.journal.records import Received, Settled
from threads.journal.records import record_adapter as journal_adapter
from threads.log import entry_adapter
from threads.model import ThreadId, message_key
from threads.store.checksummed_lines import encode, intact, read_line
from threads.store.data_folder import lock_data_folder, thread_folder
from threads.store.disk import PosixDisk

Counted = Callable[[int], None]
PLACES = {"received": 0, "started": 1, "intent": 2, "posted": 3, "settled": 4}
NOT_STATE = {"schema", "moved", "restored", "restoring"}
MEMORIES = [kind.pattern for kind in KINDS if kind.pattern.endswith("MEMORY.md")]
STATES = [kind.pattern for kind in KINDS if kind.pattern.endswith(".json") and "/" not in kind.pattern]
FILES = "SELECT thread, path, array_agg(sha ORDER BY part), min(mode) FROM file GROUP BY thread, path"
HEAD = 100
"""Numbers that a worker draws for the ledger at once."""


def now() -> datetime:
    return datetime.now(UTC)


def to_postgres(data: Path, dsn: str, counted: Counted) -> dict[str, int]:
    """Move the files below *data* to an empty database, and return how many rows each table got.

    Raises `Unmovable`, `FolderTaken`, `NewerSchema`, `ConfigInvalid` and OSError; then nothing is moved.
    """
    with lock_data_folder(data):
        prepare(data)
        FileJournal(
            PosixDisk(), data / "journal.jsonl", offload=anyio.to_thread.run_sync, now=now
        ).open()  # damage goes aside
        reader = FileReader(data)
        with alone(dsn, counted) as tables:
            tables.refuse_unless_empty()
            found = _fill(tables, data, reader)
        mark_moved(data, place_of(dsn))
    return found


def _fill(tables: Tables, data: Path, reader: FileReader) -> dict[str, int]:
    messages, aliases = _messages(reader)
    ids = {str(row[0]) for row in messages.values()}
    by_path = {thread_folder(data, ThreadId.parse(one)): one for one in ids}
    folders = {_name(data, folder, by_path): folder for folder in reader.threads()}
    logged = {
        message_key(ThreadId.parse(name), each)
        for name, folder in folders.items()
        for each in _settled(reader, folder)
    }
    filled: dict[str, Iterable[Row]] = {
        "thread": (_thread(name, folders.get(name)) for name in sorted(ids | {*folders})),
        "message": (_message(key, row, key in logged) for key, row in messages.items()),
        "alias": aliases.items(),
        "context": (row for name, folder in folders.items() for row in _context(name, folder)),
        "log": (
            (name, n, line) for name, folder in folders.items() for n, line in _numbered(reader.log(folder))
        ),
        "spending": _spending(data / "usage"),
        "account": map(_account, reader.accounts()),
        "audit": ((_at(line), line) for _, line in _numbered(reader.audit())),
        "slot": chain(
            ((path.stem, 1, path.read_text("utf-8")) for path in _states(data)),
            (
                (str(path.relative_to(data)), 1, encode_text(path.read_text("utf-8", errors="replace")))
                for path in _matching(data, MEMORIES)
            ),
        ),
        "file": _files(folders),
        "blob": _contents(folders),
    }
    counts = {table: tables.fill(table, rows) for table, rows in filled.items()}
    spent = (record.seq for part in reader.spending() for record in records(part, record_adapter(), Damage()))
    first = (max(spent, default=0) // HEAD + 1) * HEAD + 1  # what is numbered from now on is later
    tables.rows("SELECT setval('spending_seq', %s)", (first,))
    return counts


Message = list[str | None]
"""A thread, and the lines of a message's five records."""


def _messages(reader: FileReader) -> tuple[dict[str, Message], dict[str, str]]:
    """Return the records of each message by its key, as the ledger takes them, and what second ids lead to."""
    found, aliases = dict[str, Message](), dict[str, str]()
    for line in reader.journal():
        record = read_line(journal_adapter(), line)
        thread = ThreadId.parse(record.thread_id)
        key = message_key(thread, record.message_id)
        row = found.setdefault(key, [record.thread_id, *[None] * len(PLACES)])
        place = 1 + PLACES[record.kind]
        if row[-1] is None and not (isinstance(record, Received) and any(row[2:])):
            row[place] = line.decode()
        if isinstance(record, Received | Settled) and record.alias:
            aliases[message_key(thread, record.alias)] = key
    return found, aliases


def _message(key: str, row: Message, logged: bool) -> Row:
    thread, *lines = row
    first = next(line for line in lines if line)
    end = read_line(journal_adapter(), lines[-1].encode()) if lines[-1] else None
    settled = (end.at, end.outcome) if isinstance(end, Settled) else (None, None)
    return key, thread, *lines, _at(first), *settled, logged


def _thread(name: str, folder: Folder | None) -> Row:
    if folder is None:
        return name, 0, 0, True, None
    archived = (folder.path / "context.old.jsonl").exists()
    return name, 0, int(archived), True, datetime.fromtimestamp(folder.changed_at, UTC).isoformat()


def _context(name: str, folder: Folder) -> Iterator[Row]:
    old = folder.path / "context.old.jsonl"
    generations = [old, folder.path / "context.jsonl"] if old.exists() else [folder.path / "context.jsonl"]
    for generation, path in enumerate(generations):
        yield from ((name, generation, n, line) for n, line in _numbered(lines_of(path)))


def _settled(reader: FileReader, folder: Folder) -> Iterator[str]:
    entries = records(reader.log(folder), entry_adapter(), Damage())
    return (entry.message_id for entry in entries if entry.kind == "settled")


def _spending(usage: Path) -> Iterator[Row]:
    files = parts(names_in(usage))
    lines = [(part.name, line) for part in files for _, line in _numbered(lines_of(usage / part.name))]
    for number, (name, line) in enumerate(lines, -len(lines)):
        yield number, _at(line), line, name


def _account(row: Iterable[object]) -> Row:
    """Return a row of an account: what a process that is gone had set aside counts in full."""
    scope, key, spent, *more, reserved = row
    return scope, key, int(str(spent)) + int(str(reserved)), *more, 0


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    return enumerate(line.decode() for line in lines if intact(line))


def _at(line: str) -> str:
    return str(from_json(line).get("at") or now().isoformat())


def _states(data: Path) -> list[Path]:
    return [path for path in _matching(data, STATES) if path.stem not in NOT_STATE]


def _matching(data: Path, patterns: Iterable[str]) -> Iterator[Path]:
    return (path for pattern in patterns for path in sorted(data.glob(pattern)))


def _files(folders: dict[str, Folder]) -> Iterator[Row]:
    """Return the rows of the parts of all files of threads."""
    for name, folder in folders.items():
        for file in _workspace(folder):
            path = f"\\x{file.path.hex()}"
            yield from ((name, path, n, f"\\x{sha.hex()}", file.mode) for n, sha in enumerate(file.parts))


def _contents(folders: dict[str, Folder]) -> Iterator[Row]:
    """Return the parts of all files of threads, each once."""
    sent = set[bytes]()
    for folder in folders.values():
        for file in _workspace(folder):
            for sha, data in zip(file.parts, read_parts(folder.path / "workspace", file.path), strict=True):
                if sha not in sent:
                    sent.add(sha)
                    yield f"\\x{sha.hex()}", data


def _workspace(folder: Folder) -> Iterable[StoredFile]:
    root = folder.path / "workspace"
    return scan(root, {})[0].values() if root.is_dir() else ()


def _name(data: Path, folder: Folder, by_path: dict[Path, str]) -> str:
    name = by_path.get(folder.path, folder.name)
    if thread_folder(data, ThreadId.parse(name)) != folder.path:
        raise Unmovable(
            f"the thread in {folder.path} has a name that is too long to be known from its folder"
        )
    return name


def to_folder(dsn: str, data: Path, counted: Counted) -> dict[str, int]:
    """Move the database to files in *data*, a new or empty folder, and return how many lines each kind got.

    Raises as `to_postgres`.
    """
    if data.exists() and any(data.iterdir()):
        raise Unmovable(f"{data} is not empty; name a new folder")
    part = data.with_name(f"{data.name}.moving-{os.getpid()}")
    try:
        with alone(dsn, counted) as tables:
            tables.rows("SELECT lapse()")
            _refuse_mail(tables)
            part.mkdir(mode=0o700, parents=True)
            found = _write_all(tables, dsn, part, counted)
            os.sync()
            if data.exists():
                data.rmdir()
            tables.rows("UPDATE meta SET moved_to = %s", (str(data),))
            part.rename(data)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return found


def _refuse_mail(tables: Tables) -> None:
    if tables.rows("SELECT 1 FROM mail"):
        raise Unmovable("edits wait for a worker: start one, which takes them in, and stop it again")


def _write_all(tables: Tables, dsn: str, data: Path, counted: Counted) -> dict[str, int]:
    counts: dict[str, int] = {}

    def write(what: str, path: Path, lines: Iterable[str]) -> None:
        counts[what] = counts.get(what, 0) + _write(path, lines, counted)

    write("journal", data / "journal.jsonl", (line for (line,) in tables.stream(JOURNAL)))
    with closing(PostgresReader(dsn, data)) as reader:
        for thread in reader.threads():
            folder = thread_folder(data, ThreadId.parse(thread.name))
            write("log", folder / "log.jsonl", (line.decode() for line in reader.log(thread)))
            rows = tables.rows(CONTEXT, (thread.name,))
            if tables.rows("SELECT 1 FROM thread WHERE id = %s AND generation > 0", (thread.name,)):
                write(
                    "context", folder / "context.old.jsonl", (line for is_last, line in rows if not is_last)
                )
            if any(is_last for is_last, _ in rows):
                write("context", folder / "context.jsonl", (line for is_last, line in rows if is_last))
            log = folder / "log.jsonl"
            if not log.stat().st_size:
                log.unlink()
            os.utime(log if log.exists() else folder, (thread.changed_at, thread.changed_at))
    audit = (line for (line,) in tables.stream("SELECT line::text FROM audit ORDER BY id"))
    for day, lines in groupby(audit, lambda line: _at(line)[:10]):
        write("audit", data / "audit" / f"{day}.jsonl", lines)
    _write_spending(tables, data / "usage", write)
    for name, body in tables.rows("SELECT name, body::text FROM slot"):
        is_memory = name.endswith(".md")
        path = data / (name if is_memory else f"{name}.json")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(decode_text(body) if is_memory else body, "utf-8")
        path.chmod(0o600)
    counts["file"] = _write_files(tables, data, counted)
    prepare(data)
    return counts


def _write_files(tables: Tables, data: Path, counted: Counted) -> int:
    count = 0
    for thread, path, shas, mode in tables.rows(FILES):
        root = thread_folder(data, ThreadId.parse(thread)) / "workspace"
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(NewFile(root, StoredFile(path, tuple(shas), mode))) as new:
            for sha in shas:
                [(part,)] = tables.rows("SELECT data FROM blob WHERE sha = %s", (sha,))
                new.write(part)
            new.place()
        count += 1
        counted(1)
    return count


def _write_spending(tables: Tables, usage: Path, write: Callable[[str, Path, Iterable[str]], None]) -> None:
    """Write the files that there were, and what came since into a new one, with the accounts as its head."""
    spent = tables.rows("SELECT part, line::text FROM spending WHERE part IS NOT NULL ORDER BY seq")
    for name, rows in groupby(spent, lambda row: str(row[0])):
        write("spending", usage / name, (line for _, line in rows))
    since = [
        line for (line,) in tables.rows("SELECT line::text FROM spending WHERE part IS NULL ORDER BY at, seq")
    ]
    if not since:
        return
    budgets = Budgets()
    for scope, key, *amounts in tables.rows(ACCOUNTS):
        budgets.totals[scope, key] = Total(*amounts)
    budgets.seq = max(
        record.seq for record in records((line.encode() for line in since), record_adapter(), Damage())
    )
    at, month, head = now().isoformat(timespec="milliseconds"), f"{now():%Y-%m}", list[str]()
    for carried in budgets.carry():
        carried.at = at
        head.append(encode(record_adapter(), carried).decode().rstrip("\n"))
    earlier = parts(names_in(usage))
    part = earlier[-1].next(month) if earlier else Part(month)
    write("spending", usage / part.name, [*head, *since])


def _write(path: Path, lines: Iterable[str], counted: Counted) -> int:
    """Append the lines to the file, compare what it holds then, and return how many they are."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sent, count = hashlib.sha256(), 0
    with path.open("ab") as file:
        begin = file.tell()
        for line in lines:
            data = line.encode() + b"\n"
            file.write(data)
            sent.update(data)
            count += 1
            counted(1)
    with path.open("rb") as file:
        file.seek(begin)
        if hashlib.file_digest(file, "sha256").digest() != sent.digest():
            raise Unmovable(f"{path} does not hold what was written; nothing was moved")
    return count
