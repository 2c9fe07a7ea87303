"""One small value in one JSON file: read at the start, replaced whole with each change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

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


class State(Protocol[F]):
    """One small value that outlives the process. ``value`` is never changed in place: `change` it.

    ``on_change`` is called after each change, by whomever.
    """

    on_change: Callable[[], None]

    @property
    def value(self) -> F: ...

    async def change(self, function: Callable[[F], F]) -> None:
        """Make what *function* returns of the value durable, then current; nothing if it returns the very value.

        *function* may be called again, with the value of another worker. Raises what it raises, and
        `StoreUnavailable`; nothing has changed then.
        """
        ...


class States(Protocol):
    """Opens small values by their names."""

    async def open(self, name: str, empty: F) -> State[F]:
        """Return the value, *empty* at first. Raises `NewerSchema` and OSError."""
        ...


class JsonFiles:
    """The `States` of one folder, each in a file of its name."""

    def __init__(self, disk: Disk, folder: Path, offload: Offload) -> None:
        self._disk, self._folder, self._offload = disk, folder, offload

    async def open(self, name: str, empty: F) -> State[F]:
        file = JsonFile(self._disk, self._folder / f"{name}.json", self._offload, empty)
        await self._offload(file.open)
        return file


class JsonFile(Generic[F]):
    """One file and its value, a `State`."""

    def __init__(self, disk: Disk, path: Path, offload: Offload, empty: F) -> None:
        self.value = empty
        self.on_change: Callable[[], None] = lambda: None
        self._changing = anyio.Lock()
        self._disk, self._path, self._offload = disk, path, offload

    def open(self) -> None:
        """Read the file. Blocking. One that cannot be understood is put aside, and the value stays empty.

        Raises `NewerSchema` when a newer version of the program wrote it, and OSError.
        """
        if not (data := read_or_empty(self._disk, self._path)):
            return
        if (value := read_state(data, self.value, self._path.name)) is None:
            set_aside(self._disk, self._path, data)
        else:
            self.value = value

    async def change(self, function: Callable[[F], F]) -> None:
        async with self._changing:
            value = function(self.value)
            if value is not self.value:
                try:
                    await self._offload(
                        replace_file, self._disk, self._path, value.model_dump_json().encode()
                    )
                except OSError as error:
                    raise StoreUnavailable(f"{self._path.name}: {error}") from error
                self.value = value
                self.on_change()


def read_state(data: bytes, empty: F, name: str) -> F | None:
    """Return a stored value, or None for one that cannot be understood, which is logged. Raises `NewerSchema`."""
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
