"""Reads plain files of a limited size below the folder of skills, and follows no link on the way."""

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

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class SkillUnusable(Exception):
    """A skill, or a file of one, cannot be read; ``str(error)`` says why and names no path of this machine."""


class SkillMissing(SkillUnusable):
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
    """Open a plain file below *folder*; raises `SkillUnusable`."""
    with ExitStack() as stack:
        try:
            root = stack.enter_context(closing(os.open(folder, FOLDER | os.O_CLOEXEC)))
            fd = stack.enter_context(closing(open_at(root, parts, FILE)))
        except FileNotFoundError:
            raise SkillMissing(f"there is no {visible_text('/'.join(parts[1:]))[:200]}") from None
        except (OSError, ValueError):  # a name that no file can have is a ValueError
            raise SkillUnusable("it cannot be opened; links are not followed") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise SkillUnusable("it is not a file")
        yield fd


def text_of(fd: int) -> tuple[str, str]:
    """Return a file's text and the SHA-256 of its bytes; raises `SkillUnusable` if it is too large or not text."""
    data = b""
    try:
        while len(data) <= LARGEST and (more := os.read(fd, LARGEST + 1 - len(data))):
            data += more
        if len(data) > LARGEST:
            raise SkillUnusable(f"it is larger than {LARGEST:,} bytes")
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise SkillUnusable("it is not text in UTF-8, or cannot be read") from None
    if "\0" in text:
        raise SkillUnusable("it is not text")
    return text, hashlib.sha256(data).hexdigest()


def below(folder: Path, depth: int, within: str = "") -> Iterator[str]:
    """Yield the plain files in a folder and *depth* - 1 levels below, sorted, without hidden ones; raises OSError."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_file(follow_symlinks=False):
            yield within + entry.name
        elif depth > 1 and entry.is_dir(follow_symlinks=False):
            yield from below(folder / entry.name, depth - 1, f"{within}{entry.name}/")
