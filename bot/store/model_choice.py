"""Which threads chose a model of their own with `/model`."""

from __future__ import annotations

from pydantic import Field

from threads.model import ThreadId
from threads.store.json_file import JsonState, State


class ModelsFile(JsonState):
    """``models`` are names of models by the id of the thread."""

    models: dict[str, str] = Field(default_factory=dict)


class ModelChoices:
    """The choices of all threads. Unless they *count*, none has one."""

    def __init__(self, state: State[ModelsFile], *, count: bool = True) -> None:
        self._state, self._count = state, count

    def of(self, thread: ThreadId) -> str | None:
        return self._state.value.models.get(str(thread)) if self._count else None

    async def choose(self, thread: ThreadId, model: str | None) -> None:
        """Remember the choice, or with None drop it. Raises `StoreUnavailable`, and nothing has changed then."""

        def choose(old: ModelsFile) -> ModelsFile:
            others = {name: choice for name, choice in old.models.items() if name != str(thread)}
            return ModelsFile(models={**others, str(thread): model} if model else others)

        await self._state.change(choose)
