"""What a store keeps of a person, as a folder that they can read: their messages, the answers, and their files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path, PurePath

from pydantic_core import to_json

from bot.extensions.retention.thread_parts import ATTACHMENTS
from bot.extensions.retention.whom import Whom
from bot.reports.line_reader import Damage
from bot.reports.thread import entries
from bot.store.reader import Reader, Thread
from threads.log import LogEntry
from threads.model import ThreadId
from threads.store.attachments import paths
from threads.store.data_folder import plain


def export(reader: Reader, person: str, target: Path) -> tuple[int, int]:
    """Write what is kept of a person below the new folder *target*; return how many messages and files that is.

    ``messages.jsonl`` has their messages and the answers to them, oldest first in each thread. Raises OSError.
    """
    target.mkdir(mode=0o700, parents=True)
    whom, messages, files = Whom(person=person), 0, 0
    with (target / "messages.jsonl").open("xb") as out:
        for thread in reader.threads():
            log = [*entries(reader, thread, Damage())]
            said = [entry for entry in log if entry.kind == "message"]
            theirs = {entry.message_id: entry for entry in said if entry.author == person}
            if not theirs:
                continue
            for entry in log:
                if entry.message_id in theirs:
                    shown = {key: value for key, value in asdict(entry).items() if value and key != "v"}
                    out.write(to_json({"thread_id": thread.name, **shown}) + b"\n")
            messages += len(theirs)
            folder = target / "files" / plain(thread.name)
            if whom.has_thread(ThreadId.parse(thread.name), {entry.author for entry in said}):
                files += reader.copy_files(thread, folder)
            else:
                files += _attachments(reader, thread, theirs.values(), folder)
    return messages, files


def _attachments(reader: Reader, thread: Thread, theirs: Iterable[LogEntry], folder: Path) -> int:
    """Copy the files that came with messages."""
    wanted = {path for entry in theirs for path in paths(entry.message_id, [name for name, _ in entry.files])}
    copied = reader.copy_files(thread, folder) if wanted else 0
    for path in [*folder.rglob("*")] if copied else ():
        name = PurePath(ATTACHMENTS, path.name).as_posix()
        if path.is_file() and name not in wanted:
            path.unlink()
            copied -= 1
    return copied
