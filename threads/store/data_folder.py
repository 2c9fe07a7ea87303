"""The layout of the data folder, and its lock: one process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from string import ascii_letters, digits
from typing import Protocol
from urllib.parse import unquote

from threads.errors import BotError
from threads.model import ThreadId

from .disk import Disk

log = logging.getLogger(__name__)

_PLAIN = frozenset(ascii_letters + digits + "._-")
_LONGEST = 80

ANSWERED, RECENT_LOG = re.compile(rb'"kind":"(?:reply|error)"'), 65_536
"""What a turn leaves in the history of a thread, and how many of its last bytes are searched for it."""


class Spill(Protocol):
    """Writes a long text to a file of the thread."""

    async def __call__(self, name: str, text: str, *, outside: bool) -> str:
        """Write the text durably and return the path to show. Raises `StoreUnavailable`.

        ``outside``: the text contains text from outside.
        """
        ...


class FolderTaken(BotError):
    """Another process already serves this data folder."""

    code = "config_invalid"


class ForeignFolder(FolderTaken):
    """The data folder belongs to another user, who could not use files that root creates."""


@lru_cache(4096)
def thread_folder(data: Path, thread: ThreadId) -> Path:
    """Return ``<data>/threads/<transport>/<slug>``. The slug consists of ids only, made safe for a path."""
    parts = (thread.workspace, thread.channel, thread.root)
    return data.joinpath("threads", plain(thread.transport), "~".join(map(plain, parts)))


@lru_cache(4096)
def plain(part: str) -> str:
    """Return a name that is safe in a path. Different parts give different names."""
    safe = "".join(
        c if c in _PLAIN else "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "replace")) for c in part
    )
    if len(safe) > _LONGEST:
        return safe[: _LONGEST - 17] + "%" + hashlib.sha256(part.encode("utf-8", "replace")).hexdigest()[:16]
    return safe.replace(".", "%2E") if set(safe) <= {"."} else safe


def recent_threads(
    data: Path, transport: str, within_s: float, most: int, *, now: Callable[[], float] = time.time
) -> list[ThreadId]:
    """Return the transport's threads whose conversation changed in the last *within_s*, newest first. Blocking.

    A thread that cannot be read is logged and left out. Raises OSError if the folder cannot be read.
    """
    oldest, found = now() - within_s, list[tuple[float, ThreadId]]()
    folder = data / "threads" / plain(transport)
    for entry in os.scandir(folder) if folder.is_dir() else ():
        changed_at = _changed_at(entry.path)
        parts = [unquote(part) for part in entry.name.split("~")] if changed_at >= oldest else []
        thread = ThreadId(transport, *parts) if len(parts) == len(("workspace", "channel", "root")) else None
        if thread and thread_folder(data, thread).name == entry.name:
            found.append((changed_at, thread))
    return [thread for _, thread in sorted(found, key=lambda pair: pair[0], reverse=True)[:most]]


def _changed_at(folder: str) -> float:
    try:
        for path in (f"{folder}/context.jsonl", folder):  # what is left of a forgotten one has its age
            with suppress(FileNotFoundError):
                return os.stat(path).st_mtime  # noqa: PTH116 - once for each of 100,000
    except OSError as error:
        log.warning("thread.passed_over: %s", error)
    return -math.inf


def conversation_exists(disk: Disk, folder: Path) -> bool:
    """Return whether the thread of this folder ever had a conversation. Blocking. Raises OSError.

    Where the conversation was forgotten, the history still says so: commands and refusals alone open none.
    """
    if any(_exists(disk, folder / name) for name in ("context.jsonl", "context.old.jsonl")):
        return True
    with suppress(FileNotFoundError):
        return ANSWERED.search(disk.tail(folder / "log.jsonl", RECENT_LOG)) is not None
    return False


def conversation_was_archived(disk: Disk, folder: Path) -> bool:
    """Return whether an older conversation of the thread was archived. Blocking. Raises OSError."""
    return _exists(disk, folder / "context.old.jsonl")


def _exists(disk: Disk, path: Path) -> bool:
    try:
        disk.tail(path, 1)
    except FileNotFoundError:
        return False
    return True


def make_data_folder(data: Path) -> None:
    """Make the data folder if it is missing. Raises OSError, and `ForeignFolder` for root in another user's."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = data.stat().st_uid
    if os.geteuid() == 0 and owner != 0:
        raise ForeignFolder(
            f"{data} belongs to user {owner}, who could not use what root makes in it; run this as that user"
        )


@contextmanager
def lock_data_folder(data: Path) -> Iterator[None]:
    """Lock the data folder. Raises `FolderTaken`, which names the holder, or OSError if it is not writable.

    Raises `ForeignFolder` for root in another user's folder. The kernel drops the lock when the process ends, so a
    left-over lock file means nothing.
    """
    make_data_folder(data)
    fd = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 100).decode("utf-8", "replace").strip()
            raise FolderTaken(
                f"{data} is in use by another Threadfast ({holder or 'unknown process'})"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"pid {os.getpid()}\n".encode())
        yield
    finally:
        os.close(fd)
