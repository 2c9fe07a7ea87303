"""`doctor --fix`: fixes only what is safe to fix, and reports each thing it did.

| problem                                         | fix                                                     |
|-------------------------------------------------|---------------------------------------------------------|
| the data folder does not exist                  | created with mode 0700; not by root, who would own it   |
| others may open our files, folders or secrets   | mode 0700 or 0600                                       |
| a dead process left a ``.tmp`` of our files     | deleted: it never was part of anything                  |

The data folder stays as it is while a bot runs, and for any user but its owner: the bot could not open their files.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bot.extensions.doctor.data_folder import OPEN, too_open
from bot.extensions.doctor.settings import secret_places
from bot.host.checks import Context
from bot.store.layout import kind_of
from threads.store.data_folder import FolderTaken, lock_data_folder

LEFT_S = 600.0
"""Age in seconds of files that are deleted: writing one never takes ten minutes."""


def apply_fixes(context: Context) -> Iterator[str]:
    """Fix what is safe to fix, and yield each thing that was done or failed. Blocking; raises nothing."""
    data = context.settings.data
    try:
        if obstacle := _owner_obstacle(data):
            yield f"left alone: {obstacle}"
        else:
            yield from _apply_fixes(data)
    except FolderTaken as error:
        yield f"left alone: {error}"
    except OSError as error:
        yield f"could not fix {error.filename or data}: {error.strerror}"
    yield from _close(
        place for place in secret_places(context) if place.exists() and place.stat().st_mode & OPEN
    )


def _owner_obstacle(data: Path) -> str:
    """Return why this user must not write there, or ""."""
    me = os.geteuid()
    if not data.exists():
        return "" if me else f"{data} would belong to root; run this as the bot's user"
    owner = data.stat().st_uid
    return "" if owner == me else f"{data} belongs to user {owner}; run this as that user"


def _apply_fixes(data: Path) -> Iterator[str]:
    created = not data.exists()
    with lock_data_folder(data):
        if created:
            yield f"created {data}"
        yield from _close(too_open(data))
        yield from _delete_temporary(data)


def _close(places: Iterator[Path]) -> Iterator[str]:
    for place in list(places):
        try:
            mode = stat.S_IMODE(place.stat().st_mode) & ~OPEN
            place.chmod(mode)
        except OSError as error:
            yield f"could not close {place}: {error.strerror}"
        else:
            yield f"closed {place} to others (now {mode:o})"


def _delete_temporary(data: Path) -> Iterator[str]:
    # Not in workspaces: those files are people's, whatever their name.
    for folder in (data, data / "usage", data / "audit", *data.glob("threads/*/*/")):
        if not folder.resolve().is_relative_to(data.resolve()):
            continue  # a link to somewhere else
        for file in sorted(folder.glob("*.tmp")):
            ours = kind_of(PurePosixPath(file.with_suffix("").relative_to(data)))
            if ours and file.is_file() and not file.is_symlink() and _is_old(file):
                file.unlink()
                yield f"deleted {file}, which a dead process left"


def _is_old(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > LEFT_S
