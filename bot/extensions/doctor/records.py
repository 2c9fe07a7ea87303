"""Checks the records in the data folder: version, damaged lines, pending messages and dead letters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from bot.extensions.doctor.data_folder import is_open
from bot.host.checks import Context, Findings
from bot.reports.files import FileReader
from bot.reports.line_reader import Damage
from bot.reports.thread import journal
from bot.store.data_version import version_of
from bot.store.layout import DATA_VERSION, SIDECAR
from threads.errors import NewerSchema
from threads.journal.records import Intent, Received, Settled, Started
from transports.shared.checks import Finding

MOST_THREADS = 20_000

UPDATE = "Update Threadfast, or choose another data folder."


@dataclass(frozen=True, slots=True)
class JournalSummary:
    """Counts from the journal. ``failures`` are references by error code, newest last."""

    records: int = 0
    damaged: int = 0
    torn: bool = False
    waiting: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, list[str]] = field(default_factory=dict)


async def check_records(context: Context) -> Findings:
    data = context.settings.data
    if not await context.offload(is_open, data):
        return
    yield await context.offload(_version, data)
    if context.settings.store.kind != "files":  # the messages are elsewhere, see `check_store`
        yield await context.offload(_sidecars, data)
        return
    try:
        summary = await context.offload(summarize_journal, data)
    except (NewerSchema, OSError) as error:
        yield Finding("data.journal", "fail", str(error), "The bot does not start with it.", UPDATE)
        return
    yield _journal(summary, running=context.running)
    yield await context.offload(_sidecars, data)
    if put_aside := summary.outcomes["dead_letter"]:
        found = f"{put_aside} message{'s' if put_aside > 1 else ''} put aside after repeated failures"
        meaning = "They were not answered; their authors were told."
        fix = "`threadfast dead-letters list`, then `dead-letters resubmit`."
        yield Finding("data.dead_letters", "warn", found, meaning, fix)


def summarize_journal(data: Path) -> JournalSummary:
    """Read the journal; a bot may write it meanwhile. Raises `NewerSchema` and OSError."""
    outcomes, failures = Counter[str](), dict[str, list[str]]()
    open_ones: set[tuple[str, str]] = set()
    references: dict[tuple[str, str], str] = {}
    count, damage = 0, Damage()
    for record in journal(FileReader(data), damage):
        count += 1
        key = record.thread_id, record.message_id
        match record:
            case Received():
                open_ones.add(key)
            case Started():
                references[key] = record.correlation_id
            case Intent() if record.code:
                failures.setdefault(str(record.code), []).append(references.get(key, ""))
            case Settled():
                open_ones.discard(key)
                outcomes[record.outcome] += 1
            case _:
                pass
    return JournalSummary(
        count, damage.lines, _torn(data / "journal.jsonl"), len(open_ones), outcomes, failures
    )


def _torn(path: Path) -> bool:
    """Return whether the file ends within a line."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _version(data: Path) -> Finding:
    name = "data.version"
    try:
        version = version_of(data)
    except (NewerSchema, OSError) as error:
        return Finding(name, "fail", str(error), "The bot does not start with it.", UPDATE)
    if version > DATA_VERSION:
        found = f"written by a newer Threadfast: version {version}, this one knows {DATA_VERSION}"
        return Finding(
            name, "fail", found, "The bot does not start with it, and changes nothing there.", UPDATE
        )
    return Finding(name, "ok", str(version))


def _journal(summary: JournalSummary, *, running: bool) -> Finding:
    name = "data.journal"
    waiting = f"{summary.waiting} wait{'s' if summary.waiting == 1 else ''}"
    found = f"{summary.records:,} records; {'nothing waits' if not summary.waiting else waiting}"
    if summary.damaged:
        found += f"; {summary.damaged} damaged line{'s' if summary.damaged > 1 else ''}"
        meaning = "Their content is lost. The rest is good. The next start puts them aside."
        fix = "Check the disk: dmesg, smartctl. Restore a backup if much is lost."
        return Finding(name, "warn", found, meaning, fix)
    if summary.torn and not running:
        found += "; its last line was cut off by a crash, and is put aside at the start"
    elif summary.waiting and not running:
        found += " for the next start"
    return Finding(name, "ok", found)


def _sidecars(data: Path) -> Finding:
    if not (files := list(_broken(data))):
        return Finding("data.damage", "ok", "no damaged lines")
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    found = f"damaged lines were put aside: {files[0].relative_to(data)}{more}"
    meaning = "A disk error or a power failure left incomplete lines."
    return Finding(
        "data.damage", "warn", found, meaning, "Read them, and delete them when you no longer need them."
    )


def _broken(data: Path) -> Iterator[Path]:
    for folder in (data, data / "usage", data / "audit", *islice(data.glob("threads/*/*/"), MOST_THREADS)):
        yield from sorted(folder.glob(f"*{SIDECAR}"))
