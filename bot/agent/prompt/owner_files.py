"""Files that only their owner may change, such as skills: they are trusted like the system prompt."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bot.agent.prompt.memory_lines import visible_text
from threads.store.open_beneath import FILE, FOLDER, closing, open_at

LARGEST = 64_000
"""Bytes of one file."""

LOOSE = "others than its owner can change it (chmod -R go-w)"

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class FileUnusable(Exception):
    """A file cannot be read; ``str(error)`` says why and names no path of this machine."""


class FileMissing(FileUnusable):
    """The file does not exist."""


def changeable(path: Path) -> bool:
    """Return whether others than its owner can write to it; False if it does not exist."""
    try:
        about = path.stat()
    except OSError:
        return False
    return bool(about.st_mode & _WRITABLE)


@contextmanager
def opened(folder: Path, parts: Sequence[str]) -> Iterator[int]:
    """Open a plain file below *folder*; raises `FileUnusable`."""
    with ExitStack() as stack:
        try:
            root = stack.enter_context(closing(os.open(folder, FOLDER | os.O_CLOEXEC)))
            fd = stack.enter_context(closing(open_at(root, parts, FILE)))
        except FileNotFoundError:
            raise FileMissing(f"there is no {visible_text('/'.join(parts[1:]))[:200]}") from None
        except (OSError, ValueError):  # a name that no file can have is a ValueError
            raise FileUnusable("it cannot be opened; links are not followed") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileUnusable("it is not a file")
        yield fd


def text_of(fd: int) -> tuple[str, str]:
    """Return a file's text and the SHA-256 of its bytes; raises `FileUnusable` if it is too large or not text."""
    data = b""
    try:
        while len(data) <= LARGEST and (more := os.read(fd, LARGEST + 1 - len(data))):
            data += more
        if len(data) > LARGEST:
            raise FileUnusable(f"it is larger than {LARGEST:,} bytes")
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise FileUnusable("it is not text in UTF-8, or cannot be read") from None
    if "\0" in text:
        raise FileUnusable("it is not text")
    return text, hashlib.sha256(data).hexdigest()
