"""Writes a data folder as a bot would leave it, and runs the command line on it."""

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from pydantic import TypeAdapter

from bot.cli import main
from bot.observe.audit import AuditRecord
from bot.observe.audit import record_adapter as audit_adapter
from threads.log import LogEntry, entry_adapter
from threads.model import ThreadId
from threads.store.checksummed_lines import encode
from threads.store.data_folder import thread_folder

DAY = "2026-11-20"


def at(second: int) -> str:
    return f"{DAY}T10:{second // 60:02}:{second % 60:02}.000+00:00"


def exchange(
    n: int, text: str = "hello", answer: str = "hi", outcome: str = "answered", **more: str
) -> list[LogEntry]:
    """Return a message, its answer and its outcome, *n* seconds after ten."""
    return [
        LogEntry(at=at(n), kind="message", message_id=f"m{n}", author="U1", text=text),
        LogEntry(at=at(n), kind="reply", message_id=f"m{n}", text=answer, platform_id=f"p{n}"),
        LogEntry(
            at=at(n), kind="settled", message_id=f"m{n}", outcome=outcome, correlation_id=f"{n:08x}", **more
        ),
    ]


def write_thread(
    data: Path, root: str, *entries: LogEntry, channel: str = "C1", transport: str = "slack"
) -> Path:
    """Write a thread's log; the later its last line, the later its file was changed."""
    folder = thread_folder(data, ThreadId(transport, "T1", channel, root))
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.jsonl"
    log.write_bytes(b"".join(encode(entry_adapter(), entry) for entry in entries))
    hours, minutes, seconds = entries[-1].at[11:19].split(":")
    when = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    os.utime(log, (when, when))
    return folder


def write_records(path: Path, adapter: TypeAdapter[Any], *records: object) -> None:
    """Append records to a file of lines: of the journal, the audit, the ledger, a conversation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(encode(adapter, record) for record in records)


def write_audit(data: Path, *records: AuditRecord) -> None:
    for record in records:
        write_records(data / "audit" / f"{record.at[:10]}.jsonl", audit_adapter(), record)


def threadfast(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--data", str(data)])


def document(data: Path, *arguments: str) -> dict:
    result = threadfast(data, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@contextmanager
def nested_folders(folder, depth=1200):
    """Nest more folders than there may be function calls, file descriptors, or bytes in a path."""
    here = os.open(folder, os.O_RDONLY)

    def enter(name):
        nonlocal here
        above, here = here, os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(above)

    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        enter("d")
    yield
    for _ in range(depth):  # from within: nothing removes such a folder by its path
        enter("..")
        os.rmdir("d", dir_fd=here)
    os.close(here)
