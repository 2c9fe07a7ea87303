"""Which threads chose a model of their own with `/model`: one small file, read at the start, replaced whole."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from threads.model import ThreadId
from threads.store.disk import Disk, Offload
from threads.store.json_file import JsonFile, JsonState


class _File(JsonState):
    models: dict[str, str] = Field(default_factory=dict)


class ModelChoices:
    def __init__(self, disk: Disk, path: Path, offload: Offload) -> None:
        self._kept = JsonFile(disk, path, offload, _File())
        self.open = self._kept.open

    def of(self, thread: ThreadId) -> str | None:
        return self._kept.value.models.get(str(thread))

    async def choose(self, thread: ThreadId, model: str | None) -> None:
        """Remember the choice, or with None drop it. Raises `StoreUnavailable`, and nothing has changed then."""
        async with self._kept.changing:
            kept = self._kept.value.models.items()
            models = {name: chosen for name, chosen in kept if name != str(thread)}
            if model:
                models[str(thread)] = model
            await self._kept.replace(_File(models=models))
