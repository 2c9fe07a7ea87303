"""Makes a dead letter pending again; see `bot.reports.dead_letters`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread

from bot.reports.dead_letters import DeadLetter
from bot.store.data_version import prepare
from threads.background import background_tasks
from threads.journal.journal import FileJournal
from threads.journal.ports import NullTaker
from threads.model import Author, Incoming, ThreadId
from threads.store.data_folder import lock_data_folder
from threads.store.disk import PosixDisk


async def resubmit(data: Path, letter: DeadLetter) -> str:
    """Make the message pending for the next start, and return its new id.

    Raises `FolderTaken` while a bot runs, and `StoreUnavailable`.
    """
    now = partial(datetime.now, UTC)
    with lock_data_folder(data):
        prepare(data)
        journal = FileJournal(PosixDisk(), data / "journal.jsonl", offload=anyio.to_thread.run_sync, now=now)
        journal.open()
        async with background_tasks() as tasks:
            tasks.start_soon(journal.run, NullTaker())
            message = next(one for one in resubmissions(letter) if not journal.ledger.knows(one.key))
            await journal.receive(message)
    return message.id


def resubmissions(letter: DeadLetter) -> Iterator[Incoming]:
    """Return the message again and again, each time under another id; the caller takes the first unused one."""
    thread = ThreadId.parse(letter.thread_id)
    for number in count(1):
        yield Incoming(
            f"{letter.message_id}~{number}", thread, Author(letter.author), letter.text, quoted=letter.quoted
        )
