"""The second half of a restore: it is finished, even if the process is killed or the power fails.

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

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import StringConstraints, ValidationError

from threads.errors import NewerSchema
from threads.store.disk import PosixDisk, replace_file
from threads.store.json_file import JsonState

STAGE, MARK = "restoring", "restoring.json"
STAYS = frozenset({"lock", "status.sock", STAGE, MARK, f"{MARK}.tmp"})
"""Files of the process that restores, and of the restore itself."""


class _Mark(JsonState):
    """How far a restore has come, and where what it replaces is put."""

    v: Literal[1] = 1
    step: Literal["aside", "in"]
    aside: Annotated[str, StringConstraints(pattern=r"^before-restore-\w[\w.]*$")]


def swap_in(data: Path, aside: str) -> None:
    """Put what is unpacked in the place of the files there, which go to the folder *aside*."""
    _mark(data, _Mark(step="aside", aside=aside))
    finish(data)


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
        if there := replaced_files(data):
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


def replaced_files(data: Path) -> list[str]:
    """Return the names in the folder that a restore replaces: not those that earlier ones have put aside."""
    return sorted(
        name
        for name in (path.name for path in data.iterdir())
        if name not in STAYS and not name.startswith("before-")
    )


def _mark(data: Path, mark: _Mark) -> None:
    replace_file(PosixDisk(), data / MARK, mark.model_dump_json().encode())
