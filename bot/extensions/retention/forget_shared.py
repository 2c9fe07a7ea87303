"""Forgets a person or a thread in a store that many workers share: all of it in one transaction, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime

from bot.budget.budgets import record_adapter as spending_adapter
from bot.extensions.retention.due import open_in
from bot.extensions.retention.forget import Found, StillOpen, find_threads, names_them, without_them
from bot.extensions.retention.forgotten import Receipt
from bot.extensions.retention.rewritten_lines import without_name
from bot.extensions.retention.thread_parts import PARTS
from bot.extensions.retention.whom import Whom
from bot.observe.audit import record_adapter as audit_adapter
from bot.store.reader import Forgotten, SharedReader
from threads.log import entry_adapter
from threads.model import ThreadId, message_key
from threads.store.checksummed_lines import encode, read_line


def forget_shared(reader: SharedReader, whom: Whom, now: Callable[[], datetime]) -> Receipt:
    """Forget a person or a thread in a store without workers, and return how much that was.

    Blocking. Raises `StillOpen` and OSError.
    """
    values = dict(reader.values())
    if whom.thread:
        near = [one for one in reader.find(whom.thread) if one.name == whom.thread]
    else:
        near = [*reader.threads()]
    threads = [(ThreadId.parse(one.name), one) for one in near]
    found = find_threads(reader, threads, whom, open_in(reader, lambda name: values.get(name, "").encode()))
    whom = whom.with_threads(one.thread for one in found if one.is_whole)
    took = Counter[str](messages=sum(len(one.theirs) for one in found))
    lines: dict[bytes, bytes | None] = {}
    _drop_audit(reader, whom, lines, took)
    _drop_names(reader, whom, lines, took)
    changed: dict[str, str | None] = {}
    for name, before in values.items():
        after, went = without_them(name, before, whom)
        took += went
        if after != before:
            changed[name] = after
    partly = [one for one in found if not one.is_whole]
    for one in partly:
        lines |= dict.fromkeys(_lines_of(reader, one), None)
    files = {
        str(one.thread): [*filter(one.is_their_file, (file.name for file in reader.files(one.place)))]
        for one in partly
    }
    for one in found:
        if one.is_whole:
            took["threads"] += 1
            took["files"] += len(reader.files(one.place))
    took["files"] += sum(map(len, files.values()))
    left = reader.forget(
        Forgotten(
            parts={str(one.thread): PARTS if one.is_whole else ["conversation"] for one in found},
            messages=[message_key(one.thread, entry.message_id) for one in partly for entry in one.theirs],
            files=files,
            lines=lines,
            values=changed,
            accounts=[
                (str(scope), str(key)) for scope, key, *_ in reader.accounts() if whom.is_named(str(key))
            ],
        )
    )
    if left:
        raise StillOpen(f"a worker serves {', '.join(left[:5])}, or a message is open there")
    return Receipt(at=now(), took={what: count for what, count in took.items() if count})


def _drop_audit(
    reader: SharedReader, whom: Whom, lines: dict[bytes, bytes | None], took: Counter[str]
) -> None:
    for line in reader.audit():
        if names_them(whom, read_line(audit_adapter(), line)):
            lines[line] = None
            took["lines of the audit"] += 1


def _drop_names(
    reader: SharedReader, whom: Whom, lines: dict[bytes, bytes | None], took: Counter[str]
) -> None:
    for part in reader.spending():
        for line in part:
            record = read_line(spending_adapter(), line)
            if (new := without_name(record, whom.is_named)) != record:
                lines[line] = encode(spending_adapter(), new).rstrip(b"\n") if new else None
                took["model calls without a name"] += 1


def _lines_of(reader: SharedReader, found: Found) -> Iterable[bytes]:
    """Return the lines of a thread's history that are theirs, with what answers them."""
    ids = {entry.message_id for entry in found.theirs}
    for line in reader.log(found.place):
        entry = read_line(entry_adapter(), line)
        if entry.message_id in ids or entry.by in ids:
            yield line
