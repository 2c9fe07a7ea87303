"""Which threads chose a model of their own with `/model`: one small file, read at the start, replaced whole."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
from pydantic import BaseModel, ValidationError

from threads.disk import Disk, Offload, read_or_empty, replace_file, set_aside
from threads.errors import StoreUnavailable
from threads.model import ThreadId

log = logging.getLogger(__name__)


class _File(BaseModel):
    v: int = 1
    models: dict[str, str] = {}


class ChosenModels:
    def __init__(self, disk: Disk, path: Path, offload: Offload) -> None:
        self._disk, self._path, self._offload = disk, path, offload
        self._models: dict[str, str] = {}
        self._writing = anyio.Lock()

    def open(self) -> None:
        """Read the file; one that cannot be understood is put aside, and every thread has the usual model."""
        data = read_or_empty(self._disk, self._path)
        try:
            self._models = _File.model_validate_json(data).models if data else {}
        except ValidationError as error:
            log.warning("models.json is damaged and was put aside: %s", error)
            set_aside(self._disk, self._path, data)

    def of(self, thread: ThreadId) -> str | None:
        return self._models.get(str(thread))

    async def choose(self, thread: ThreadId, model: str | None) -> None:
        """Remember the choice, or with None drop it. Raises `StoreUnavailable`, and nothing has changed then."""
        async with self._writing:
            models = {name: chosen for name, chosen in self._models.items() if name != str(thread)}
            if model:
                models[str(thread)] = model
            try:
                await self._offload(self._write, models)
            except OSError as error:
                raise StoreUnavailable(f"models.json: {error}") from error
            self._models = models

    def _write(self, models: dict[str, str]) -> None:
        replace_file(self._disk, self._path, _File(models=models).model_dump_json().encode())
