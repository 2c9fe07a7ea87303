"""Files of checksummed lines, written again without some of what they tell. Blocking.

Each is replaced whole: a kill leaves the old file or the new one. Lines that cannot be read are dropped, because
nobody knows what they tell.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from bot.budget.budgets import Call, Carried, Commit, Grant, Record, Reserve, Warned
from bot.budget.budgets import record_adapter as spending_adapter
from bot.observe.audit import AuditRecord
from bot.observe.audit import record_adapter as audit_adapter
from threads.log import LogEntry, entry_adapter
from threads.store.checksummed_lines import Versioned, encode, read_records
from threads.store.disk import Disk, read_or_empty, replace_file

V = TypeVar("V", bound=Versioned)


def rewrite(disk: Disk, path: Path, adapter: TypeAdapter[V], change: Callable[[list[V]], Iterable[V]]) -> int:
    """Replace the records of a file with what *change* returns, and return by how many it got fewer.

    A file without a change stays as it is, and one with a change as old as it was: the age of a thread is that of its
    history. Raises OSError, and `threads.errors.NewerSchema`.
    """
    found, damaged = read_records(adapter, read_or_empty(disk, path))
    before = [record for record, _ in found]
    after = [*change(before)]
    if damaged or after != before:
        was = path.stat()
        replace_file(disk, path, b"".join(encode(adapter, record) for record in after))
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    return len(before) - len(after)


def drop_messages(disk: Disk, path: Path, ids: Collection[str]) -> int:
    """Drop messages from a thread's history, with what answers them, and return how many lines that was."""

    def kept(entries: list[LogEntry]) -> list[LogEntry]:
        return [entry for entry in entries if entry.message_id not in ids and entry.by not in ids]

    return rewrite(disk, path, entry_adapter(), kept)


def drop_audit(disk: Disk, path: Path, drops: Callable[[AuditRecord], bool]) -> int:
    """Drop lines of the audit, and return how many that was."""
    return rewrite(disk, path, audit_adapter(), lambda records: [one for one in records if not drops(one)])


def sum_calls(disk: Disk, path: Path) -> int:
    """Make the calls of an old file of the ledger one by day and model, and return by how many lines it got fewer.

    Whose they were is forgotten, and so are the sums of still older files at its head. A call that begins or ends in
    another file stays one line.
    """

    def summed(records: list[Record]) -> list[Record]:
        ends = {one.reserve for one in records if isinstance(one, Commit) and one.reserve}
        begun = {one.seq for one in records if isinstance(one, Reserve)}
        sums: dict[tuple[str, str, bool], Commit] = {}
        singles = list[Record]()
        for one in records:
            match one:
                case Commit() if not one.reserve or one.reserve in begun:
                    key = one.call.day, one.call.model, one.micros is None
                    first = sums.setdefault(
                        key, replace(one, call=nobodys(one.call), usage=one.usage, reserve=0)
                    )
                    if first.seq != one.seq:
                        first.usage += one.usage
                        first.micros = None if first.micros is None else first.micros + (one.micros or 0)
                case Commit():
                    singles.append(replace(one, call=nobodys(one.call)))
                case Reserve() if one.seq not in ends:
                    singles.append(replace(one, call=nobodys(one.call)))
                case _:
                    pass
        return sorted([*sums.values(), *singles], key=lambda one: one.seq)

    return rewrite(disk, path, spending_adapter(), summed)


def nobodys(call: Call) -> Call:
    """Return a call with its day and its model only."""
    return Call("", "", "", call.model, call.day)


def drop_names(disk: Disk, path: Path, is_theirs: Callable[[str], bool]) -> int:
    """Take names of people and threads out of a file of the ledger, and return out of how many lines.

    What the calls cost stays. The sums under these names go.
    """
    changed = 0

    def without(records: list[Record]) -> list[Record]:
        nonlocal changed
        found = [(one, without_name(one, is_theirs)) for one in records]
        changed += sum(one != new for one, new in found)
        return [new for _, new in found if new]

    rewrite(disk, path, spending_adapter(), without)
    return changed


def without_name(one: Record, is_theirs: Callable[[str], bool]) -> Record | None:
    """Return a record of the ledger without names of people and threads; None for one that says nothing else."""

    def blank(call: Call) -> Call:
        return nobodys(call) if any(map(is_theirs, (call.user, call.thread_id, call.turn))) else call

    match one:
        case Commit() | Reserve():
            return replace(one, call=blank(one.call))
        case Grant() | Warned() if is_theirs(one.key.rpartition(" ")[2]):
            return None
        case Carried():
            rows = [row for row in one.rows if not is_theirs(row[1].rpartition(" ")[2])]
            return replace(one, rows=rows, open=[replace(made, call=blank(made.call)) for made in one.open])
        case _:
            return one
