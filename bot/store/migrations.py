"""A data folder of an older version becomes one of this version, at the start, before anything in it is opened.

``schema.json`` holds the folder's version; a folder without one is of version 1. A migration says, by the pattern of
`bot.store.layout`, what the new content of a file is, made of the old one.

| the folder is  | then                                                                                             |
|----------------|--------------------------------------------------------------------------------------------------|
| newer          | refused: not one byte is changed; so is one in which any file is newer, however it came there    |
| of this version| opened                                                                                           |
| older          | ``schema.json`` says where the old files are kept, ``before-v<next>-<time>/``; each is copied    |
|                | there, once, then replaced by what becomes of that copy; when all are, ``schema.json`` says so;  |
|                | and so on, one version after the other                                                           |

A kill anywhere is harmless: the next start makes the same of the same copies. They stay until somebody deletes them:
moved over the new ones, ``schema.json`` too, they are where the older program goes on.
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
"""The rest is only appended to, or refused by the thread whose it is."""
TAIL = 1_000_000
"""Bytes at the end of a file of lines that hold its last one, or it is not looked at here."""

Migration = Mapping[str, Callable[[bytes], bytes]]
"""What becomes of files, by the pattern of their kind: the new content of the old. Raises ValueError for none."""

MIGRATIONS: Mapping[int, Migration] = {}
"""By the version that they start from, each to the next one: from 1 to `DATA_VERSION` without a gap."""


class _Schema(JsonState):
    """The folder's version, and while it is upgraded, where the old files are kept."""

    aside: str = ""


class _Moved(JsonState):
    """Where a store was moved that the folder held before."""

    to: str


def mark_moved(data: Path, to: str) -> None:
    """Let nobody start on the folder any more: what it held is at *to* now."""
    replace_file(PosixDisk(), data / MOVED, _Moved(to=to).model_dump_json().encode())


def prepare(
    data: Path,
    now: Callable[[], datetime],
    *,
    disk: Disk | None = None,
    version: int = DATA_VERSION,
    migrations: Mapping[int, Migration] = MIGRATIONS,
) -> None:
    """Make the folder one of this version. Blocking; only for who holds it.

    Raises `NewerSchema`, `ConfigInvalid` for one that was moved, and OSError: the next start goes on then.
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
    """Raise `NewerSchema` for a file that ends in a newer schema; what is damaged is its owner's to judge."""
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
    """Return all of a file of one value, and the last whole line of one of lines."""
    with path.open("rb") as file:
        if path.suffix != ".jsonl":
            return file.read()
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        *whole, _ = file.read(TAIL).split(b"\n")
        return whole[-1] if whole else b""


def version_of(data: Path) -> int:
    """Return the version of a data folder. Raises OSError, `NewerSchema` for one that cannot be understood."""
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
    """Replace one file by what becomes of its kept copy: the same, however often."""
    if not kept.exists():
        disk.mkdir(kept.parent)
        replace_file(disk, kept, read_or_empty(disk, data / path))
    replace_file(disk, data / path, change(disk.read(kept)))


def _say(disk: Disk, data: Path, schema: _Schema) -> None:
    replace_file(
        disk, data / NAME, schema.model_dump_json(exclude={"aside"} if not schema.aside else None).encode()
    )
