"""The models that threads chose with `/model`."""

from __future__ import annotations

from pydantic import Field

from threads.model import ThreadId
from threads.store.json_file import JsonState, State


class ModelsFile(JsonState):
    """``models`` maps the id of a thread to the name of its model."""

    models: dict[str, str] = Field(default_factory=dict)


class ModelChoices:
    """The choices of all threads. They are ignored unless they *count*."""

    def __init__(self, state: State[ModelsFile], *, count: bool = True) -> None:
        self._state, self._count = state, count

    def of(self, thread: ThreadId) -> str | None:
        return self._state.value.models.get(str(thread)) if self._count else None

    def ignored(self) -> ModelChoices:
        """Return these choices, of which none counts."""
        return ModelChoices(self._state, count=False)

    async def choose(self, thread: ThreadId, model: str | None) -> None:
        """Store the choice, or remove it if None. Raises `StoreUnavailable`, and nothing has changed then."""

        def choose(old: ModelsFile) -> ModelsFile:
            others = {name: choice for name, choice in old.models.items() if name != str(thread)}
            return ModelsFile(models={**others, str(thread): model} if model else others)

        await self._state.change(choose)
