"""`doctor --fix`: what is safe and can be taken back, and no more. Each thing done is told.

| what                                         | how                                                         |
|----------------------------------------------|-------------------------------------------------------------|
| a data folder that is not there              | made, 0700; not by root, whose it would be                  |
| files and folders of ours, open to others    | closed: 0700, 0600; also those with secrets                 |
| ``<a file of ours>.tmp`` of a dead process   | deleted: they were never part of anything                   |
| `threadfast-browser-*` in the temp folder    | deleted, if no process knows of it any more                 |

In the data folder nothing is done beside a running bot (the lock is held meanwhile), nor by another user than its
owner: the bot could not open what that one makes.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from bot.admin.doctor.checks import Context
from bot.admin.doctor.data_folder import too_open
from bot.admin.doctor.settings import OPEN, secret_places
from bot.store.layout import kind_of
from threads.store.data_folder import FolderTaken, sole_owner

LEFT_S = 600.0
"""Age of what is deleted: nobody writes a file for ten minutes."""
BROWSERS = "threadfast-browser-*"


def apply_fixes(look: Context) -> Iterator[str]:
    """Do it, and tell each thing that was done or could not be. Blocking; raises nothing."""
    data = look.settings.data
    try:
        if why := _not_ours(data):
            yield f"left alone: {why}"
        else:
            yield from _apply_fixes(data)
    except FolderTaken as error:
        yield f"left alone: {error}"
    except OSError as error:
        yield f"could not fix {error.filename or data}: {error.strerror}"
    yield from _closed(
        place for place in secret_places(look) if place.exists() and place.stat().st_mode & OPEN
    )
    yield from _browsers(Path(tempfile.gettempdir()))


def _not_ours(data: Path) -> str:
    """Say why nothing may be written there: what one user makes, the bot of another cannot open."""
    me = os.geteuid()
    if not data.exists():
        return "" if me else f"{data} would belong to root; run this as the bot's user"
    owner = data.stat().st_uid
    return "" if owner == me else f"{data} belongs to user {owner}; run this as that user"


def _apply_fixes(data: Path) -> Iterator[str]:
    made = not data.exists()
    with sole_owner(data):
        if made:
            yield f"made {data}"
        yield from _closed(too_open(data))
        yield from _swept(data)


def _closed(places: Iterator[Path]) -> Iterator[str]:
    for place in list(places):
        try:
            mode = stat.S_IMODE(place.stat().st_mode) & ~OPEN
            place.chmod(mode)
        except OSError as error:
            yield f"could not close {place}: {error.strerror}"
        else:
            yield f"closed {place} to others (now {mode:o})"


def _swept(data: Path) -> Iterator[str]:
    folders = [
        data,
        *(data / name for name in ("usage", "audit")),
        *data.glob("threads/*/*/"),
    ]
    for folder in folders:  # not in workspaces: what is there is a person's, whatever its name
        if not folder.resolve().is_relative_to(data.resolve()):
            continue  # a link to somewhere else
        for file in sorted(folder.glob("*.tmp")):
            ours = kind_of(PurePosixPath(file.with_suffix("").relative_to(data)))
            if ours and file.is_file() and not file.is_symlink() and _is_old(file):
                file.unlink()
                yield f"deleted {file}, which a dead process left"


def _browsers(folder: Path) -> Iterator[str]:
    known = _known_to_processes()
    for home in sorted(folder.glob(BROWSERS)):
        if home.is_symlink() or home.stat().st_uid != os.geteuid() or not _is_old(home):
            continue
        if known is not None and home.name.encode() not in known:
            shutil.rmtree(home, ignore_errors=True)
            yield f"deleted {home}, which a dead browser left"


def _known_to_processes() -> bytes | None:
    """Return what our processes were started with; None where that cannot be told."""
    told = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                told.append((process / name).read_bytes())
            except OSError:
                continue  # another user's, or just ended
    return b"\0".join(told) if told else None


def _is_old(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > LEFT_S
