"""A dead letter goes back in line: received anew, under an id of its own, for the next start."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import anyio.to_thread

from bot.admin.dead_letters.listing import DeadLetter
from bot.store.migrations import prepare
from threads.journal.journal import FileJournal
from threads.journal.ports import NullTaker
from threads.model import Author, Incoming, ThreadId
from threads.store.data_folder import lock_data_folder
from threads.store.disk import PosixDisk


async def resubmit(data: Path, letter: DeadLetter) -> str:
    """Make the message pending again, and return its new id.

    Raises `FolderTaken` while a bot runs, and `StoreUnavailable`.
    """
    with lock_data_folder(data):
        prepare(data, partial(datetime.now, UTC))
        journal = FileJournal(
            PosixDisk(),
            data / "journal.jsonl",
            offload=anyio.to_thread.run_sync,
            now=partial(datetime.now, UTC),
        )
        journal.open()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(journal.run, NullTaker())
            tries = again(letter)
            found = next(one for one in tries if not journal.ledger.knows(one.key))
            await journal.receive(found)
            tasks.cancel_scope.cancel()
    return found.id


def again(letter: DeadLetter) -> Iterator[Incoming]:
    """Return the message anew, under each id that it may get."""
    thread = ThreadId.parse(letter.thread_id)
    for number in count(1):
        yield Incoming(f"{letter.message_id}~{number}", thread, Author(letter.author), letter.text)
