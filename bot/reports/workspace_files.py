"""Lists and copies the files of a thread's workspace. Links in it are never followed."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from bot.store.reader import WorkspaceFile

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

DEEPEST = 100
"""Folders in one another: a command may nest any number, and what is deeper is left out."""


def files_of(thread: Path) -> list[WorkspaceFile]:
    """Return the files of a thread's workspace. Raises OSError."""
    found = (WorkspaceFile(name, size) for name, size, _ in _open_files(thread))
    return sorted(found, key=lambda file: file.name)


def copy_files(thread: Path, target: Path) -> int:
    """Copy them below *target*, readable by their owner alone, and return how many. Raises OSError."""
    count = 0
    for name, _, fd in _open_files(thread):
        to = target / name
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target_fd = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(target_fd, "wb") as out, os.fdopen(os.dup(fd), "rb") as file:
            shutil.copyfileobj(file, out)
        count += 1
    return count


def _open_files(thread: Path) -> Iterator[tuple[str, int, int]]:
    """Return each regular file with its path, its size, and an open descriptor that is closed afterwards.

    A command may be changing the workspace meanwhile: what is gone, or became a link, is left out. A file with a
    second name could be anybody's, and is left out too.
    """
    workspace = thread / "workspace"
    if not workspace.is_dir():
        return
    for folder, folders, names, at in os.fwalk(workspace, follow_symlinks=False):
        if len(Path(folder).relative_to(workspace).parts) >= DEEPEST:
            folders.clear()
        for name in names:
            try:
                fd = os.open(name, _READ, dir_fd=at)
            except OSError:
                continue  # a link, a socket, or gone
            try:
                about = os.fstat(fd)
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                    yield os.path.relpath(os.path.join(folder, name), workspace), about.st_size, fd  # noqa: PTH118
            finally:
                os.close(fd)
