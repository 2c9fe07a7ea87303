"""Forgets a person or a thread in the files of a data folder.

| where        | of a thread            | of a person                                                              |
|--------------|------------------------|--------------------------------------------------------------------------|
| threads      | all of it              | all of those where nobody else wrote; of others their messages with the  |
|              |                        | answers, their files, and the conversation as the model sees it          |
| journal      | what its messages say  | the same                                                                 |
| audit        | its lines              | the lines of the person                                                  |
| usage        | its name; sums stay    | the person's name; sums stay                                             |
| memory       | its notes              | the notes that the person asked for                                      |
| small values | what names it          | what names the person; the folders of the page                           |

It goes file by file, each replaced whole, the threads last and then the list of what was forgotten: after a kill it
is done again. Nothing is taken while a message waits for its answer.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path, PurePath

import anyio
from pydantic_core import from_json, to_json

from bot.agent.prompt.memory_lines import parse_notes, to_text
from bot.budget.ledger import names_in, parts
from bot.extensions.retention.due import content, open_in, owed
from bot.extensions.retention.forgotten import Receipt, note, open_list
from bot.extensions.retention.rewritten_lines import drop_audit, drop_messages, drop_names
from bot.extensions.retention.thread_parts import ATTACHMENTS, PARTS, count_files, erase, thread_folders
from bot.extensions.retention.whom import Whom
from bot.observe.audit import AuditRecord
from bot.reports.files import FileReader, Folder
from bot.reports.line_reader import Damage
from bot.reports.thread import entries
from bot.store.reader import Reader, Thread
from threads.background import background_tasks
from threads.errors import BotError
from threads.journal.journal import FileJournal
from threads.journal.ports import NullTaker
from threads.log import LogEntry
from threads.model import ThreadId
from threads.store.attachments import paths
from threads.store.data_folder import plain
from threads.store.disk import Disk, replace_file
from transports.base.transport import CONSOLE_USER

NOT_PRUNED = ("schema", "moved", "restored", "forgotten", "servers", "mcp")
"""Small values without a name of a person or a thread."""

SMALL_VALUES = "small values"


class StillOpen(BotError):
    """Nothing was forgotten: something is still open; ``str(error)`` says what."""


async def forget(
    data: Path, whom: Whom, disk: Disk, now: Callable[[], datetime], *, is_open_elsewhere: bool = False
) -> Receipt:
    """Forget a person or a thread in a folder that no bot serves, and return how much that was.

    *is_open_elsewhere*: the newest file of the ledger is in use, and stays as it is. Raises `StillOpen` and OSError.
    """
    found = await anyio.to_thread.run_sync(_threads_of, data, whom)
    whom = whom.with_threads(one.thread for one in found if one.is_whole)
    took = await anyio.to_thread.run_sync(partial(_forget_names, data, whom, disk, is_open_elsewhere))
    await _forget_in_journal(data, [one.thread for one in found], disk, now)
    for one in found:  # last: after a kill they are found again
        took += await anyio.to_thread.run_sync(_forget_thread, one, disk)
    receipt = Receipt(at=now(), took=dict(took))
    await note(await open_list(disk, data, anyio.to_thread.run_sync), {whom.name: receipt})
    return receipt


@dataclass(frozen=True, slots=True)
class Found:
    """A thread in which there is something to forget: all of it, or all but the messages of ``others``."""

    thread: ThreadId
    place: Thread
    is_whole: bool
    theirs: Sequence[LogEntry]
    others: Sequence[LogEntry]

    def is_their_file(self, path: str) -> bool:
        """Return whether a file came with no message of others, or was made of one that did not.

        One that came with a line that was only quoted may be theirs.
        """
        # A file's text and its small picture have names that begin with its own.
        named = (
            PurePath(one).name
            for entry in self.others
            for one in paths(entry.message_id, [name for name, _ in entry.files])
        )
        return PurePath(path).parts[0] == ATTACHMENTS and not PurePath(path).name.startswith(tuple(named))


def find_threads(
    reader: Reader, threads: Iterable[tuple[ThreadId, Thread]], whom: Whom, is_open: Collection[str]
) -> list[Found]:
    """Return the threads in which there is something to forget. Raises `StillOpen` and OSError."""
    found = list[Found]()
    for thread, place in threads:
        said = [entry for entry in entries(reader, place, Damage()) if entry.kind == "message"]
        theirs = [entry for entry in said if whom.person and entry.author == whom.person]
        others = [entry for entry in said if entry.author != whom.person]
        is_whole = whom.has_thread(thread, {entry.author for entry in said})
        if is_whole or theirs or any(map(whom.is_quoted_in, reader.conversation(place))):
            found.append(Found(thread, place, is_whole, theirs, others))
    waiting = {one.thread_id for one in owed(reader) if whom.person and one.author.id == whom.person}
    if still := sorted(({str(one.thread) for one in found} & {*is_open}) | waiting):
        raise StillOpen(f"a message, a question or a schedule is open in {', '.join(still[:5])}")
    return found


def _threads_of(data: Path, whom: Whom) -> list[Found]:
    reader = FileReader(data)
    threads = ((folder.thread, Folder(folder.path)) for folder in thread_folders(data))
    return find_threads(reader, threads, whom, open_in(reader, lambda name: content(data / f"{name}.json")))


def _forget_thread(found: Found, disk: Disk) -> Counter[str]:
    """Erase a thread, or what a person said in it. Returns how many of what that was."""
    path, took = found.place.path, Counter(messages=len(found.theirs))
    if found.is_whole:
        took["threads"] += 1
        took["files"] += count_files(path)
        erase(disk, path, PARTS)
        shutil.rmtree(path, ignore_errors=True)
        return took
    erase(disk, path, ["conversation"])
    workspace = path / "workspace"
    for file in [*(workspace / ATTACHMENTS).rglob("*")]:
        if not file.is_dir() and found.is_their_file(str(file.relative_to(workspace))):
            file.unlink()
            took["files"] += 1
    drop_messages(disk, path / "log.jsonl", {entry.message_id for entry in found.theirs})
    (path / "log.jsonl.broken").unlink(missing_ok=True)
    return took


async def _forget_in_journal(
    data: Path, threads: list[ThreadId], disk: Disk, now: Callable[[], datetime]
) -> None:
    path = data / "journal.jsonl"
    if not path.exists():
        return
    path.with_name(f"{path.name}.broken").unlink(missing_ok=True)
    journal = FileJournal(disk, path, offload=anyio.to_thread.run_sync, now=now)
    await anyio.to_thread.run_sync(journal.open)
    async with background_tasks() as tasks:
        tasks.start_soon(journal.run, NullTaker())
        for thread in threads:
            await journal.forget(thread)
    journal.close()


def _forget_names(data: Path, whom: Whom, disk: Disk, is_open_elsewhere: bool) -> Counter[str]:
    """Take them out of everything but the threads and the journal. Returns how many of what that was."""
    took = Counter[str]()
    for path in sorted((data / "audit").glob("????-??-??.jsonl")):
        took["lines of the audit"] += drop_audit(disk, path, partial(names_them, whom))
        path.with_name(f"{path.name}.broken").unlink(missing_ok=True)
    found = parts(names_in(data / "usage"))
    for part in found[:-1] if is_open_elsewhere else found:
        took["model calls without a name"] += drop_names(disk, data / "usage" / part.name, whom.is_named)
    for path in (
        data / "MEMORY.md",
        *sorted((data / "channels").glob("*/*/MEMORY.md")),
        *sorted((data / "threads").glob("*/*/MEMORY.md")),
        *sorted(data.glob("*.json")),
    ):
        if path.is_file():
            took += _rewrite(disk, path, whom)
    for path in _own_places(data, whom):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return took


def _rewrite(disk: Disk, path: Path, whom: Whom) -> Counter[str]:
    before = path.read_text("utf-8", "surrogateescape")
    after, took = without_them(path.name.removesuffix(".json"), before, whom)
    if after is None:
        path.unlink()
    elif after != before:
        replace_file(disk, path, after.encode("utf-8", "surrogateescape"))
    return took


def without_them(name: str, before: str, whom: Whom) -> tuple[str | None, Counter[str]]:
    """Return a text of the memory or a small value without them, and how many of what went.

    It is None if it is all theirs.
    """
    if name.endswith("MEMORY.md"):
        notes = parse_notes(before) if whom.person else []
        kept = [one for one in notes if one.by != plain(whom.person)]
        return (to_text(kept) if len(kept) < len(notes) else before), Counter(notes=len(notes) - len(kept))
    if whom.person and name == f"web-threads-{whom.person}":
        return None, Counter({SMALL_VALUES: 1})
    if name in NOT_PRUNED or name.endswith(("-marks", "-commands")):
        return before, Counter()
    try:
        value = from_json(before)
    except ValueError:
        return before, Counter()  # it is damaged, and is set aside at the next start
    pruned = whom.out_of(value) if isinstance(value, dict) else value
    return (to_json(pruned).decode() if pruned != value else before), Counter(
        {SMALL_VALUES: int(pruned != value)}
    )


def names_them(whom: Whom, record: AuditRecord) -> bool:
    """Return whether a line of the audit is theirs."""
    return whom.is_named(record.author or "-") or whom.is_named(record.thread_id or "-")


def _own_places(data: Path, whom: Whom) -> list[Path]:
    """Return what transports keep for them alone: files of the page, and what was typed into the terminal."""
    posted = data / "web" / "posted"
    if whom.person == CONSOLE_USER:
        return [data / "console-history", data / "attached", *data.glob("threadfast.log*")]
    if whom.person:
        return [data / "web" / "sent" / plain(whom.person), posted / plain(whom.person)]
    thread = ThreadId.parse(whom.thread)
    return [posted / plain(thread.channel) / plain(thread.root)] if thread.transport == "web" else []
