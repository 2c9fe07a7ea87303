"""Small values, each in a JSON file that is read at the start and replaced with each change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import anyio
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from threads.errors import NewerSchema, StoreUnavailable
from threads.store.disk import Disk, Offload, read_or_empty, replace_file, set_aside

log = logging.getLogger(__name__)


class JsonState(BaseModel):
    """The content of such a file. ``v`` is its schema version."""

    model_config = ConfigDict(defer_build=True)

    v: int = 1


F = TypeVar("F", bound=JsonState)


class State(Protocol[F]):
    """A small value that outlives the process. Never change ``value`` in place: `change` it.

    ``on_change`` is called after each change, also after that of another worker.
    """

    on_change: Callable[[], None]

    @property
    def value(self) -> F: ...

    async def change(self, function: Callable[[F], F]) -> None:
        """Replace the value with what *function* makes of it, durably. Does nothing if that is the same object.

        *function* may be called again with the value of another worker. Raises its exceptions and
        `StoreUnavailable`. Nothing has changed then.
        """
        ...


class States(Protocol):
    """Opens small values by name."""

    async def open(self, name: str, empty: F) -> State[F]:
        """Return the value, *empty* at first. Raises `NewerSchema` and OSError."""
        ...


class JsonFiles:
    """The `States` of a folder, each in a file of its name."""

    def __init__(self, disk: Disk, folder: Path, offload: Offload) -> None:
        self._disk, self._folder, self._offload = disk, folder, offload

    async def open(self, name: str, empty: F) -> State[F]:
        file = JsonFile(self._disk, self._folder / f"{name}.json", self._offload, empty)
        await self._offload(file.open)
        return file


class JsonFile(Generic[F]):
    """A `State` in a file."""

    def __init__(self, disk: Disk, path: Path, offload: Offload, empty: F) -> None:
        self.value = empty
        self.on_change: Callable[[], None] = lambda: None
        self._changing = anyio.Lock()
        self._disk, self._path, self._offload = disk, path, offload

    def open(self) -> None:
        """Read the file. Blocking. A damaged file is set aside, and the value stays empty.

        Raises `NewerSchema` if a newer version of the program wrote it, and OSError.
        """
        if not (data := read_or_empty(self._disk, self._path)):
            return
        if (value := read_state(data, self.value, self._path.name)) is None:
            set_aside(self._disk, self._path, data)
        else:
            self.value = value

    async def change(self, function: Callable[[F], F]) -> None:
        async with self._changing:
            if (value := function(self.value)) is not self.value:
                try:
                    await self._offload(
                        replace_file, self._disk, self._path, value.model_dump_json().encode()
                    )
                except OSError as error:
                    raise StoreUnavailable(f"{self._path.name}: {error}") from error
                self.value = value
                self.on_change()


def read_state(data: bytes, empty: F, name: str) -> F | None:
    """Return a stored value, or None if it is damaged, which is logged. Raises `NewerSchema`."""
    try:
        version = from_json(data).get("v", 1)
        if isinstance(version, int) and version > empty.v:
            raise NewerSchema(
                f"{name} was written by a newer Threadfast (schema {version}, this one knows {empty.v})"
                " and is left as it is; update this one, or choose another data folder."
            )
        return type(empty).model_validate_json(data)
    except (ValidationError, ValueError, AttributeError) as error:
        log.warning("state.damaged: %s is damaged and was put aside: %s", name, error)
        return None
