"""Restores a data folder from a backup: all or nothing.

The backup is unpacked and checked here; then `bot.store.unfinished_restore` lets it take its place.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from bot.extensions.backup.archive import Keep, Read, about, read
from bot.store.restored_answers import NAME as RESTORED
from bot.store.restored_answers import Restored
from bot.store.unfinished_restore import STAGE, finish, replaced_files, swap_in
from threads.errors import BotError
from threads.model import WallClock
from threads.store.data_folder import lock_data_folder

KEEP_FREE = 50_000_000
"""Bytes of the disk that a restore leaves free."""


class RestoreRefused(BotError):
    """Nothing was changed; ``str(error)`` says why, and what to do."""


def restore(
    file: Path, data: Path, now: WallClock, *, force: bool = False, on_bytes: Callable[[int], None]
) -> tuple[Read, Path | None]:
    """Make *data* what the backup holds. Returns what was read, and where the old files are now.

    Raises `FolderTaken` while a bot runs, `RestoreRefused`, `BackupDamaged`, `NewerSchema` and OSError. Then nothing
    has changed, or the next start finishes it.
    """
    about(file)
    if data.exists() and (owner := data.stat().st_uid) != os.geteuid():
        raise RestoreRefused(
            f"{data} belongs to user {owner}; run this as that user, or the bot cannot open the files."
        )
    with lock_data_folder(data):
        finish(data)
        if (there := replaced_files(data)) and not force:
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
        swap_in(data, aside)
    return found, data / aside if there else None


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
