"""What the commands that look, a search and a start cost over 10,000 threads and three years, and over ten threads.

Logs and conversations are written as the bot writes them, line by line. The ledger and the journal are written by
their own writers in time lapse, so they hold what their heads and compactions leave.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copyfile
from statistics import median
from tempfile import TemporaryDirectory
from zlib import crc32

import anyio

from benchmarks.figures import Conditions, Figure
from benchmarks.rig import inline
from benchmarks.startup import SETTINGS, once
from benchmarks.stopwatch import Cost, Stopwatch
from bot.budget.budgets import Call, Commit, Reserve
from bot.budget.ledger import Ledger
from bot.config.settings import Settings
from bot.observe.audit import AuditRecord
from bot.observe.audit import record_adapter as audit_adapter
from bot.ports.model import Usage
from threads.background import background_tasks
from threads.journal.journal import FileJournal
from threads.journal.ports import NullTaker
from threads.journal.records import Intent, PendingMessage, Received, Record
from threads.log import LogEntry, entry_adapter, log_entries
from threads.model import Author, Message, Text, ThreadId, ToolCall, ToolResult
from threads.store.checksummed_lines import encode
from threads.store.context import Line, line_adapter
from threads.store.data_folder import thread_folder
from threads.store.disk import PosixDisk
from transports.web.page_history import ThreadHistory

THREADS, MESSAGES, DAYS, AUDIT_LINES = 10_000, 10, 1_095, 200
FEW, FEW_DAYS = 10, 1
JOURNALLED = 40_000
"""The last messages, which go through the journal: more than it keeps."""
AT_ONCE, RUNS = 500, 5
AT_MOST_S = 0.5

PERSON = "ann"
PLACES = ("slack:T1:C1", "slack:T1:C2", "discord:88:99", f"web::{PERSON}", f"web::{PERSON}")
WORDS = (
    "the",
    "build",
    "of",
    "a",
    "release",
    "fails",
    "since",
    "upgrade",
    "nobody",
    "knows",
    "why",
    "please",
    "look",
)


@dataclass(frozen=True, slots=True)
class Said:
    """One message of the years, and where it is."""

    at: datetime
    thread: ThreadId
    message_id: str
    n: int


@dataclass(frozen=True, slots=True)
class Years:
    """A filled data folder, with messages to ask for."""

    data: Path
    last: Said
    old: Said


def _place(thread: int, at: datetime, place: str) -> ThreadId:
    return ThreadId(*place.split(":"), _id(place, at, thread))


def _id(place: str, at: datetime, n: int) -> str:
    """Return an id as the platform gives them: both chat platforms' grow with time, the page's say nothing."""
    seconds = int(at.timestamp())
    match place.partition(":")[0]:
        case "slack":
            return f"{seconds}.{n:06}"
        case "discord":
            return str(((seconds * 1000 - 1_420_070_400_000) << 22) | n)
        case _:
            return f"{random.Random(f'{seconds} {n}').getrandbits(64):016x}"


def _said(threads: int, days: int, now: datetime) -> list[Said]:
    found, start = [], now - timedelta(days=days)
    for thread in range(threads):
        began = start + timedelta(days=days) * thread / threads
        where = _place(thread, began, PLACES[thread % len(PLACES)])
        for n in range(MESSAGES):
            at = min(began + timedelta(minutes=17) * n, now)
            place = str(where).rpartition(":")[0]
            found.append(Said(at, where, _id(place, at, thread * MESSAGES + n), n))
    return sorted(found, key=lambda one: (one.at, one.message_id))


def _text(seed: str, words: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def _pending(one: Said) -> PendingMessage:
    thread, message_id = str(one.thread), one.message_id
    at, asked, answer = _iso(one.at), _text(f"{one.thread} {one.n}", 25), _text(f"{one.thread} {one.n}.", 110)
    received = Received(
        thread_id=thread, message_id=message_id, author=Author(PERSON, "Ann"), text=asked, sent_at=at, at=at
    )
    pending = PendingMessage(received, platform_id=f"p{message_id}")
    pending.started = pending.start(1, f"{crc32(f'{thread} {one.n}'.encode()):08x}")
    pending.intent = Intent(
        thread_id=thread, message_id=message_id, text=answer, post="reply", outcome="answered"
    )
    return pending


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def _write_thread(data: Path, said: Sequence[Said]) -> None:
    folder, log, context = thread_folder(data, said[0].thread), list[LogEntry](), list[Message]()
    for one in said:
        pending, done = _pending(one), _iso(one.at + timedelta(seconds=9))
        end = pending.settled("answered")
        end.at = done
        log += log_entries(pending, end)
        assert pending.intent is not None
        context.append(
            Message("user", (Text(pending.received.text),), source=one.message_id, at=_iso(one.at))
        )
        if one.n % 5 == 0:
            call = ToolCall(f"call-{one.n}", "read_file", {"path": "notes/release.md"})
            context.append(Message("assistant", (call,), at=done))
            context.append(Message("user", (ToolResult(call.id, _text("file", 200)),), at=done))
        context.append(Message("assistant", (Text(pending.intent.text),), model="anthropic/claude", at=done))
    folder.mkdir(parents=True)
    (folder / "log.jsonl").write_bytes(b"".join(encode(entry_adapter(), entry) for entry in log))
    (folder / "context.jsonl").write_bytes(b"".join(encode(line_adapter(), Line(m)) for m in context))
    changed_at = said[-1].at.timestamp() + 9
    for name in ("log.jsonl", "context.jsonl"):
        os.utime(folder / name, (changed_at, changed_at))


def _write_audit(data: Path, said: Sequence[Said], days: int, now: datetime) -> None:
    (data / "audit").mkdir()
    first, step = 0, timedelta(days=1) / AUDIT_LINES
    for day in (now.date() - timedelta(days=days - n) for n in range(days + 1)):
        begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
        lines = []
        for n in range(AUDIT_LINES):
            at = begin + step * n
            while first + 1 < len(said) and said[first + 1].at < at:
                first += 1
            details = {"error": "rate_limited", "reason": _text("audit", 12), "attempt": 1, "wait_s": 2.0}
            ids = {"thread_id": str(said[first].thread), "message_id": said[first].message_id}
            lines.append(
                encode(audit_adapter(), AuditRecord(at=_iso(at), kind="retry", details=details, **ids))
            )
        (data / "audit" / f"{day}.jsonl").write_bytes(b"".join(lines))


async def _write_money(data: Path, said: Sequence[Said]) -> None:
    at = said[0].at
    ledger = Ledger(PosixDisk(), data / "usage", offload=inline, now=lambda: at)
    (data / "usage").mkdir()
    ledger.open()
    async with ledger.writing():
        for first in range(0, len(said), AT_ONCE):
            for one in said[first : first + AT_ONCE]:
                at = one.at
                thread = one.thread
                turn = f"{thread.transport}:{thread.workspace}:{thread.channel}:{one.message_id}"
                call = Call(str(thread), PERSON, turn, "anthropic/claude-sonnet-5-5", ledger.today)
                ledger.put(reserve := Reserve(call=call, micros=9_000))
                usage = Usage(4_000, 300, 3_000)
                done = ledger.put(Commit(call=call, usage=usage, micros=4_500, reserve=reserve.seq))
            await done.done.wait()


async def _write_journal(data: Path, said: Sequence[Said]) -> None:
    at = said[0].at
    journal = FileJournal(PosixDisk(), data / "journal.jsonl", offload=inline, now=lambda: at)
    journal.open()
    async with background_tasks() as tasks:
        tasks.start_soon(journal.run, NullTaker())
        for first in range(0, len(said), AT_ONCE):
            records = list[Record]()
            for one in said[first : first + AT_ONCE]:
                at, pending = one.at, _pending(one)
                assert pending.started is not None
                assert pending.intent is not None
                records += [pending.received, pending.started, pending.intent, pending.posted()]
                records.append(pending.settled("answered"))
            await journal.append(*records)
            journal.ledger.log_holds(*list(journal.ledger.unlogged))


def fill(data: Path, threads: int, days: int) -> Years:
    """Write a data folder of so many threads that were served over so many days."""
    now = datetime.now(UTC)
    said = _said(threads, days, now)
    by_thread = dict[ThreadId, list[Said]]()
    for one in said:
        by_thread.setdefault(one.thread, []).append(one)
    for of_thread in by_thread.values():
        _write_thread(data, of_thread)
    _write_audit(data, said, days, now)
    anyio.run(_write_money, data, said)
    anyio.run(_write_journal, data, said[-JOURNALLED:])
    chats = [one for one in said if one.thread.transport == "slack"]
    return Years(data, chats[-1], chats[len(chats) // 3])


def _commands(years: Years) -> dict[str, tuple[Sequence[str], int]]:
    """Return what is measured: arguments of the program, and the exit code."""
    last, old = years.last, years.old
    return {
        "threads list": (("threads", "list"), 0),
        "threads list --transport --since": (
            ("threads", "list", "--transport", "slack", "--since", "30d"),
            0,
        ),
        "why, of today": (("why", last.message_id), 0),
        "why, two years ago": (("why", old.message_id), 0),
        "why --thread": (("why", old.message_id, "--thread", str(old.thread)), 0),
        "why, unknown": (("why", "nobody-said-this"), 1),
        "threads show": (("threads", "show", str(old.thread)), 0),
        "audit": (("audit",), 0),
        "usage": (("usage",), 0),
        "dead-letters list": (("dead-letters", "list"), 0),
        "chat, one line": (("chat",), 0),
    }


def _times(years: Years, folder: Path) -> dict[str, Cost]:
    found = {}
    for name, (arguments, code) in _commands(years).items():
        run = ["-m", "bot", *arguments, "--data", str(years.data)]
        found[name] = _median([once(run, folder, "", code) for _ in range(RUNS + 1)][1:])
    for name, words in {"search, found": "release fails", "search, in no thread": "xylophone"}.items():
        found[name] = _median([_search(years.data, *words.split()) for _ in range(RUNS + 1)][1:])
    return found


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))


def measure(conditions: Conditions) -> Iterator[Figure]:
    threads = THREADS // 10 if conditions.quick else THREADS
    with TemporaryDirectory(dir=conditions.disk) as root:
        folder = Path(root)
        (folder / "settings.json").write_text(SETTINGS)
        many, few = fill(folder / "many", threads, DAYS), fill(folder / "few", FEW, FEW_DAYS)
        os.sync()
        small, large = _times(few, folder), _times(many, folder)
        copyfile(many.data / "journal.jsonl", few.data / "journal.jsonl")  # ten threads with as many messages
        busy = _median(
            [once(["-m", "bot", "chat", "--data", str(few.data)], folder, "") for _ in range(RUNS + 1)][1:]
        )
    for name, cost in large.items():
        note = f"CPU {cost.cpu:.2f} s; {FEW} threads: {small[name].wall:.2f} s, CPU {small[name].cpu:.2f} s"
        limit = None if name.startswith("chat") else AT_MOST_S
        yield Figure(name, cost.wall, "s", at_most=limit, note=note)
    cpu = large["chat, one line"].cpu
    yield Figure("chat, CPU beside ten threads", cpu / small["chat, one line"].cpu)
    yield Figure("chat, CPU beside ten threads that had as many messages", cpu / busy.cpu, at_most=1.1)


def _search(data: Path, *words: str) -> Cost:
    """Search as the page does, in a process that runs."""
    watch = Stopwatch()
    anyio.run(ThreadHistory(Settings(data=data), {}).search, PERSON, words, {}, ())
    return watch.read()
