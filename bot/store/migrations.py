"""Upgrades a data folder of an older version at the start, before any of its files is opened.

``schema.json`` has the folder's version. A folder without it has version 1. A migration maps the pattern of a kind of
file in `bot.store.layout` to a function from its old content to its new.

| the folder is   | then                                                                                            |
|-----------------|-------------------------------------------------------------------------------------------------|
| newer           | refused and left unchanged; the same if any of its files is newer                               |
| of this version | opened                                                                                          |
| older           | ``schema.json`` names the folder for the old files, ``before-v<next>-<time>/``. Each file is    |
|                 | copied there once, then replaced by the migration of its copy. When all are done,               |
|                 | ``schema.json`` has the next version. The same for each version after that                      |

A kill at any point is harmless: the next start does the same with the same copies. They stay until somebody deletes
them. To go back to the older program, move them, with ``schema.json``, over the new files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path, PurePosixPath

from pydantic import ValidationError
from pydantic_core import from_json

from bot.ports.config_error import ConfigInvalid
from bot.store.layout import DATA_VERSION, KINDS, Step, files_of
from bot.store.restore import finish
from threads.errors import NewerSchema
from threads.store.disk import Disk, PosixDisk, read_or_empty, replace_file
from threads.store.json_file import JsonState, read_state

log = logging.getLogger(__name__)

NAME = "schema.json"
MOVED = "moved.json"

READ_AT_THE_START = frozenset({Step.MARKS, Step.PROMISES, Step.STATE, Step.MONEY})
"""Other files are only appended to, or refused by their own thread."""
TAIL = 1_000_000
"""Bytes at the end of a file of lines that contain its last line. Longer last lines are not checked here."""

Migration = Mapping[str, Callable[[bytes], bytes]]
"""Maps the pattern of a kind of file to a function from its old content to its new.

Raises ValueError if it cannot.
"""

MIGRATIONS: Mapping[int, Migration] = {}
"""Each maps a version to the next one, from 1 to `DATA_VERSION` without a gap."""


class _Schema(JsonState):
    """The folder's version, and the place of the old files during an upgrade."""

    aside: str = ""


class _Moved(JsonState):
    """The place to which the store in this folder was moved."""

    to: str


def mark_moved(data: Path, to: str) -> None:
    """Prevent starts on this folder, because its content is at *to* now."""
    replace_file(PosixDisk(), data / MOVED, _Moved(to=to).model_dump_json().encode())


def prepare(
    data: Path,
    now: Callable[[], datetime],
    *,
    disk: Disk | None = None,
    version: int = DATA_VERSION,
    migrations: Mapping[int, Migration] = MIGRATIONS,
) -> None:
    """Bring the folder to this version. Blocking. The caller holds the folder.

    Raises `NewerSchema`, `ConfigInvalid` for a folder that was moved, and OSError. The next start goes on then.
    """
    disk = disk or PosixDisk()
    if finish(data):
        log.warning("restore.finished: a restore that was cut off is finished")
    if moved := read_or_empty(disk, data / MOVED):
        there_now = read_state(moved, _Moved(to=""), MOVED)
        place = there_now.to if there_now else "another place"
        raise ConfigInvalid(f"{data} was moved to {place}; name that in the settings (`store`, `data`).")
    there = _schema(data)
    if there.v > version:
        raise NewerSchema(
            f"{data} was written by a newer Threadfast (data of version {there.v}, this one knows {version}) and is "
            "left as it is; update this one, or choose another data folder."
        )
    if there.v == version == DATA_VERSION:  # what `KINDS` says is of this version
        _refuse_newer(data)
    while there.v < version:
        there = _upgrade(disk, data, there, now(), migrations[there.v])
    if not (data / NAME).exists():
        _say(disk, data, there)


def _refuse_newer(data: Path) -> None:
    """Raise `NewerSchema` for a file whose schema is newer. Damage is left to the owner of the file."""
    for kind in KINDS:
        if kind.schema is None or kind.step not in READ_AT_THE_START:
            continue
        for path in _of(data, kind.pattern):
            with suppress(ValueError, AttributeError):
                said = from_json(_last_word(data / path)).get("v", 1)
                if isinstance(said, int) and said > kind.schema:
                    raise NewerSchema(
                        f"{path} was written by a newer Threadfast (schema {said}, this one knows {kind.schema}) "
                        "and is left as it is; update this one, or choose another data folder."
                    )


def _last_word(path: Path) -> bytes:
    """Return the whole file if it holds one value, or its last complete line if it holds lines."""
    with path.open("rb") as file:
        if path.suffix != ".jsonl":
            return file.read()
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        *whole, _ = file.read(TAIL).split(b"\n")
        return whole[-1] if whole else b""


def version_of(data: Path) -> int:
    """Return the version of a data folder. Raises OSError, and `NewerSchema` if it cannot be understood."""
    return _schema(data).v


def _schema(data: Path) -> _Schema:
    try:
        return _Schema.model_validate_json((data / NAME).read_bytes())
    except FileNotFoundError:
        return _Schema()
    except ValidationError as error:
        raise NewerSchema(
            f"{data / NAME} cannot be read, so it is not known which version wrote the folder; put it back as it "
            "was, or if that was version 1, delete it."
        ) from error


def _upgrade(disk: Disk, data: Path, there: _Schema, now: datetime, migration: Migration) -> _Schema:
    """Take the folder one version further."""
    if not there.aside:
        there = _Schema(v=there.v, aside=f"before-v{there.v + 1}-{now:%Y%m%dT%H%M%SZ}")
        _say(disk, data, there)
    log.warning(
        "data.upgrading: from version %d to %d; the old files are in %s", there.v, there.v + 1, there.aside
    )
    aside = data / there.aside
    disk.mkdir(aside)
    replace_file(disk, aside / NAME, _Schema(v=there.v).model_dump_json().encode())
    for pattern, change in migration.items():
        for path in _of(data, pattern):
            _migrate(disk, data, path, aside / path, change)
    done = _Schema(v=there.v + 1)
    _say(disk, data, done)
    return done


def _of(data: Path, pattern: str) -> list[PurePosixPath]:
    kind = next(kind for kind in KINDS if kind.pattern == pattern)
    return [path for path in files_of(data, Step(kind.step)) if kind.covers(path)]


def _migrate(
    disk: Disk, data: Path, path: PurePosixPath, kept: Path, change: Callable[[bytes], bytes]
) -> None:
    """Replace one file by the migration of its copy. Repeating it gives the same file."""
    if not kept.exists():
        disk.mkdir(kept.parent)
        replace_file(disk, kept, read_or_empty(disk, data / path))
    replace_file(disk, data / path, change(disk.read(kept)))


def _say(disk: Disk, data: Path, schema: _Schema) -> None:
    replace_file(
        disk, data / NAME, schema.model_dump_json(exclude={"aside"} if not schema.aside else None).encode()
    )
