"""Restores a data folder from a backup: all or nothing, even if the process is killed or the power fails.

Everything happens inside the folder, because its parent may not be writable.

| step                                          | after a kill in this step                                        |
|-----------------------------------------------|------------------------------------------------------------------|
| unpacked and checked in ``restoring/``        | nothing has changed; the next start, or restore, deletes it      |
| ``restoring.json`` says "aside"               | the next start, or restore, goes on from here                    |
| the old files move to ``before-restore-…/``   | the same: whatever is still there is old                         |
| ``restoring.json`` says "in"                  | the same                                                         |
| the unpacked files move in                    | the same: whatever is still in ``restoring/`` is missing         |
| ``restoring.json`` is deleted                 | done                                                             |

Only unpacked files are ever deleted. `finish` does all from the second line on, and every start calls it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import StringConstraints, ValidationError

from bot.store.restored_answers import NAME as RESTORED
from bot.store.restored_answers import Restored
from threads.errors import BotError, NewerSchema
from threads.store.data_folder import lock_data_folder
from threads.store.disk import PosixDisk, replace_file
from threads.store.json_file import JsonState

if TYPE_CHECKING:
    import tarfile

    from bot.store.archive import Keep, Read

STAGE, MARK = "restoring", "restoring.json"
STAYS = frozenset({"lock", "status.sock", STAGE, MARK, f"{MARK}.tmp"})
"""Files of the process that restores, and of the restore itself."""

KEEP_FREE = 50_000_000
"""Bytes of the disk that a restore leaves free."""


class RestoreRefused(BotError):
    """Nothing was changed; ``str(error)`` says why, and what to do."""


class _Mark(JsonState):
    """How far a restore has come, and where what it replaces is put."""

    v: Literal[1] = 1
    step: Literal["aside", "in"]
    aside: Annotated[str, StringConstraints(pattern=r"^before-restore-\w[\w.]*$")]


def restore(
    file: Path,
    data: Path,
    now: Callable[[], datetime],
    *,
    force: bool = False,
    on_bytes: Callable[[int], None],
) -> tuple[Read, Path | None]:
    """Make *data* what the backup holds. Returns what was read, and where the old files are now.

    Raises `FolderTaken` while a bot runs, `RestoreRefused`, `BackupDamaged`, `NewerSchema` and OSError. Then nothing
    has changed, or the next start finishes it.
    """
    from bot.store.archive import about, read  # noqa: PLC0415 - a start does not need it

    about(file)
    if data.exists() and (owner := data.stat().st_uid) != os.geteuid():
        raise RestoreRefused(
            f"{data} belongs to user {owner}; run this as that user, or the bot cannot open the files."
        )
    with lock_data_folder(data):
        finish(data)
        there = _there(data)
        if there and not force:
            raise RestoreRefused(
                f"{data} is not empty ({', '.join(there[:3])}{', …' if there[3:] else ''}). With --force its files "
                "are put aside, not deleted; or name another folder with --data."
            )
        stage = data / STAGE
        stage.mkdir(mode=0o700)
        try:
            room = max(0, shutil.disk_usage(data).free - KEEP_FREE)
            found = read(file, _unpack_into(stage, on_bytes), most=room)
            came = Restored(backup=file.name, backup_at=found.about.at, restored_at=now())
            (stage / RESTORED).write_text(came.model_dump_json())
            os.sync()
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
        aside = f"before-restore-{now():%Y%m%dT%H%M%S.%fZ}"
        _mark(data, _Mark(step="aside", aside=aside))
        finish(data)
    return found, data / aside if there else None


def finish(data: Path) -> bool:
    """Finish a restore that had begun to change the folder. Returns whether there was one.

    The caller holds the folder. Raises OSError, and `NewerSchema` for a restore that cannot be understood.
    """
    try:
        mark = _Mark.model_validate_json((data / MARK).read_bytes())
    except FileNotFoundError:
        shutil.rmtree(data / STAGE, ignore_errors=True)  # unpacked, but never begun
        return False
    except ValidationError as error:
        raise NewerSchema(
            f"{data / MARK} cannot be read, so it is not known how far a restore got, and the folder is left as "
            f"it is; finish it with the version that began it. The old files are in {data}/before-restore-*."
        ) from error
    disk, stage, aside = PosixDisk(), data / STAGE, data / mark.aside
    if mark.step == "aside":
        if there := _there(data):
            disk.mkdir(aside)
        for name in there:
            (data / name).rename(aside / name)
        disk.fsync_folder(data)
        _mark(data, _Mark(step="in", aside=mark.aside))
    for path in sorted(stage.iterdir()) if stage.is_dir() else ():
        path.rename(data / path.name)
    disk.fsync_folder(data)
    with suppress(FileNotFoundError):
        stage.rmdir()
    disk.unlink(data / MARK)
    disk.fsync_folder(data)
    return True


def _there(data: Path) -> list[str]:
    """Return the names in the folder, without what earlier restores have put aside."""
    return sorted(
        name
        for name in (path.name for path in data.iterdir())
        if name not in STAYS and not name.startswith("before-")
    )


def _mark(data: Path, mark: _Mark) -> None:
    replace_file(PosixDisk(), data / MARK, mark.model_dump_json().encode())


def _unpack_into(stage: Path, on_bytes: Callable[[int], None]) -> Keep:
    """Return a function that writes members below *stage*, as new files only."""

    def keep(path: PurePosixPath, info: tarfile.TarInfo, blocks: Iterator[bytes]) -> None:
        target = stage / path
        folder = target if info.isdir() else target.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if info.isdir():
            return
        mode = 0o600 | (info.mode & 0o100)
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            for block in blocks:
                file.write(block)
                on_bytes(len(block))
        with suppress(ValueError, OverflowError):  # a time that this system cannot store
            os.utime(target, (info.mtime, info.mtime))

    return keep
