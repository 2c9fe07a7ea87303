"""How fast a start is ready when the data folder holds 100,000 threads, and 20 messages still wait for an answer.

The folders are written raw, the journal by our own `Journal` in time lapse, so it holds what it would hold: what one
message in each thread over the last day left after its compactions, and then the pending ones.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from benchmarks.child import ask
from benchmarks.figures import Conditions, Figure
from benchmarks.rig import Instant, Room, inline, message, running
from bot.agent.prompt.user_message import user_message
from bot.wiring.app import utc_now
from threads.background import background_tasks
from threads.delivery import LATE_POST_S
from threads.journal.journal import FileJournal
from threads.journal.ports import NullTaker
from threads.journal.records import Intent, PendingMessage, Received, Record
from threads.log import LogEntry, entry_adapter
from threads.model import Message, Text
from threads.store.checksummed_lines import encode
from threads.store.context import Line, line_adapter
from threads.store.data_folder import thread_folder
from threads.store.disk import PosixDisk

PENDING = 20
DAY = timedelta(hours=24)
AT_ONCE = 200
LINKS = 20_000
"""Threads that share a file; ext4 allows 65,000 names for one."""

ANSWER = "All right, that is done."


def _folders(data: Path, threads: int) -> None:
    """Give every thread a conversation of one turn, without waiting for the disk.

    Only threads that will be served have files of their own; the others share them by hard links.
    """
    said = Message("assistant", (Text(ANSWER),), model=Instant.name)
    context = b"".join(encode(line_adapter(), Line(m)) for m in (user_message(message(0, 0)), said))
    at = utc_now().isoformat(timespec="milliseconds")
    history = b"".join(
        encode(entry_adapter(), LogEntry(at=at, kind=kind, message_id="0-0", text=ANSWER))
        for kind in ("message", "reply", "settled")
    )
    for thread in range(threads):
        folder = thread_folder(data, message(thread, 0).thread)
        folder.mkdir(parents=thread == 0)
        for name, content in (("context.jsonl", context), ("log.jsonl", history)):
            template = data / f"{name}.{thread // LINKS}"
            if thread < PENDING:
                folder.joinpath(name).write_bytes(content)
                template.write_bytes(content)
            else:
                if thread % LINKS == 0:
                    template.write_bytes(content)
                os.link(template, folder / name)


async def _journal(data: Path, threads: int) -> None:
    """Let the journal live through a day, and end it with messages that nobody answered."""
    at = utc_now() - DAY
    step = DAY / threads

    def now() -> datetime:
        return min(at, utc_now())

    journal = FileJournal(PosixDisk(), data / "journal.jsonl", offload=inline, now=now)
    journal.open()
    async with background_tasks() as tasks:
        tasks.start_soon(journal.run, NullTaker())
        for first in range(0, threads, AT_ONCE):
            span = range(first, min(first + AT_ONCE, threads))
            await journal.append(*[record for thread in span for record in _story(thread, 0)])
            at += step * AT_ONCE
        at = utc_now()
        # A quarter of the pending ones had been started when the process died.
        await journal.append(
            *[r for thread in range(PENDING) for r in _story(thread, 1)[: 1 + (thread % 4 == 0)]]
        )


def _story(thread: int, n: int) -> list[Record]:
    """Return all that the journal ever holds of one message."""
    asked = message(thread, n)
    place = str(asked.thread)
    received = Received(
        thread_id=place, message_id=asked.id, author=asked.author, text=asked.text, sent_at=asked.sent_at
    )
    pending = PendingMessage(received, platform_id=f"p-{asked.id}")
    intent = Intent(thread_id=place, message_id=asked.id, text=ANSWER, post="reply", outcome="answered")
    return [
        received,
        pending.start(1, f"{thread:08x}"),
        intent,
        pending.posted(),
        pending.settled("answered"),
    ]


async def _start(data: Path, began: float) -> dict[str, float]:
    """Start the bot; return the seconds from *began* until it was ready and until nothing was pending."""
    room = Room()
    answers = [room.expect(message(thread, 1)) for thread in range(PENDING)]
    opening = time.monotonic()
    async with running(data, room, Instant()):
        ready = time.monotonic()
        outcomes = [await answer() for answer in answers]
        assert outcomes == ["answered"] * PENDING, outcomes
        return {"open": ready - opening, "ready": ready - began, "answered": time.monotonic() - began}


def measure(conditions: Conditions) -> Iterator[Figure]:
    threads = 2_000 if conditions.quick else 100_000
    with TemporaryDirectory(dir=conditions.disk) as folder:
        data = Path(folder)
        _folders(data, threads)
        anyio.run(partial(_journal, data, threads))
        size = data.joinpath("journal.jsonl").stat().st_size
        os.sync()
        found = ask("restart", data, time.monotonic())
    note = f"{threads:,} threads, journal of {size / 1e6:.0f} MB; open_core alone {found['open']:.2f} s"
    yield Figure("process start to ready", found["ready"], "s", at_most=2, note=note)
    late = f"{LATE_POST_S:g} s of it by design: a post of the dead process may still land"
    yield Figure(f"until {PENDING} pending are answered", found["answered"], "s", note=late)


def main() -> None:
    folder, began = sys.argv[1:]
    print(json.dumps(anyio.run(_start, Path(folder), float(began))))


if __name__ == "__main__":
    main()
