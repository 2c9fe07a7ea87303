"""Refuses a data folder that a newer version wrote, before any of its files is opened.

``schema.json`` has the folder's version. A folder without it has version 1, the only one so far. A folder that
was moved elsewhere is refused too. A restore that was cut off is finished first.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from bot.ports.config_error import ConfigInvalid
from bot.store.layout import DATA_VERSION, KINDS, Step
from bot.store.unfinished_restore import finish
from threads.errors import NewerSchema
from threads.store.disk import PosixDisk, read_or_empty, replace_file
from threads.store.json_file import JsonState, read_state

log = logging.getLogger(__name__)

NAME = "schema.json"
MOVED = "moved.json"

READ_AT_THE_START = frozenset({Step.MARKS, Step.PROMISES, Step.STATE, Step.MONEY})
"""Other files are only appended to, or refused by their own thread."""
TAIL = 1_000_000
"""Bytes at the end of a file of lines that contain its last line. Longer last lines are not checked here."""


class _Schema(JsonState):
    """The folder's version."""


class _Moved(JsonState):
    """The place to which the store in this folder was moved."""

    to: str


def mark_moved(data: Path, to: str) -> None:
    """Prevent starts on this folder, because its content is at *to* now."""
    replace_file(PosixDisk(), data / MOVED, _Moved(to=to).model_dump_json().encode())


def prepare(data: Path) -> None:
    """Check that this program may open the folder, and write the version into a new one. Blocking.

    The caller holds the folder. Raises `NewerSchema`, `ConfigInvalid` for a folder that was moved, and OSError.
    """
    disk = PosixDisk()
    if finish(data):
        log.warning("restore.finished: a restore that was cut off is finished")
    if moved := read_or_empty(disk, data / MOVED):
        there_now = read_state(moved, _Moved(to=""), MOVED)
        place = there_now.to if there_now else "another place"
        raise ConfigInvalid(f"{data} was moved to {place}; name that in the settings (`store`, `data`).")
    if (version := version_of(data)) > DATA_VERSION:
        raise NewerSchema(
            f"{data} was written by a newer Threadfast (data of version {version}, this one knows {DATA_VERSION}) "
            "and is left as it is; update this one, or choose another data folder."
        )
    _refuse_newer(data)
    if not (data / NAME).exists():
        replace_file(disk, data / NAME, _Schema(v=version).model_dump_json().encode())


def _refuse_newer(data: Path) -> None:
    """Raise `NewerSchema` for a file whose schema is newer. Damage is left to the owner of the file.

    Only kinds that have a schema are looked for: no folder of a thread is opened, however many there are.
    """
    kinds = (kind for kind in KINDS if kind.schema and kind.step in READ_AT_THE_START)
    for path, schema in ((path, kind.schema or 0) for kind in kinds for path in kind.files(data)):
        with suppress(ValueError, AttributeError):
            said = from_json(_last_word(data / path)).get("v", 1)
            if isinstance(said, int) and said > schema:
                raise NewerSchema(
                    f"{path} was written by a newer Threadfast (schema {said}, this one knows {schema}) "
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
    try:
        return _Schema.model_validate_json((data / NAME).read_bytes()).v
    except FileNotFoundError:
        return _Schema().v
    except ValidationError as error:
        raise NewerSchema(
            f"{data / NAME} cannot be read, so it is not known which version wrote the folder; put it back as it "
            "was, or if that was version 1, delete it."
        ) from error
