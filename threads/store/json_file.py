"""One small value in one JSON file: read at the start, replaced whole with each change."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

import anyio
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from threads.errors import NewerSchema, StoreUnavailable
from threads.store.disk import Disk, Offload, read_or_empty, replace_file, set_aside

log = logging.getLogger(__name__)


class JsonState(BaseModel):
    """What such a file holds; ``v`` is the schema it was written in."""

    v: int = 1


F = TypeVar("F", bound=JsonState)


class JsonFile(Generic[F]):
    """One file and its value. ``value`` is never changed in place: `replace` it."""

    def __init__(self, disk: Disk, path: Path, offload: Offload, empty: F) -> None:
        self.value = empty
        self.changing = anyio.Lock()
        self._disk, self._path, self._offload = disk, path, offload

    def open(self) -> None:
        """Read the file. Blocking. One that cannot be understood is put aside, and the value stays empty.

        Raises `NewerSchema` when a newer version of the program wrote it, and OSError.
        """
        if not (data := read_or_empty(self._disk, self._path)):
            return
        known = self.value.v
        try:
            version = from_json(data).get("v", 1)
            if isinstance(version, int) and version > known:
                raise NewerSchema(
                    f"{self._path.name} was written by a newer Threadfast (schema {version}, this one knows {known})"
                    " and is left as it is; update this one, or choose another data folder."
                )
            self.value = type(self.value).model_validate_json(data)
        except (ValidationError, ValueError, AttributeError) as error:
            log.warning("state.damaged: %s is damaged and was put aside: %s", self._path.name, error)
            set_aside(self._disk, self._path, data)

    async def replace(self, value: F) -> None:
        """Make *value* durable, then current. Raises `StoreUnavailable`, and nothing has changed then.

        Hold ``changing`` while you make the new value from the old one.
        """
        try:
            await self._offload(replace_file, self._disk, self._path, value.model_dump_json().encode())
        except OSError as error:
            raise StoreUnavailable(f"{self._path.name}: {error}") from error
        self.value = value
