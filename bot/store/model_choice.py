"""What threads chose with `/model`: a model, and how much it reasons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import Field

from bot.ports.effort import Effort
from threads.model import ThreadId
from threads.store.json_file import JsonState, State

T = TypeVar("T")


class ModelsFile(JsonState):
    """``models`` maps the id of a thread to the name of its model, and ``efforts`` to how much that reasons."""

    models: dict[str, str] = Field(default_factory=dict)
    efforts: dict[str, Effort] = Field(default_factory=dict)


class ModelChoices:
    """The choices of all threads. They are ignored unless they *count*."""

    def __init__(self, state: State[ModelsFile], *, count: bool = True) -> None:
        self._state, self._count = state, count

    def of(self, thread: ThreadId) -> str | None:
        return self._state.value.models.get(str(thread)) if self._count else None

    def effort_of(self, thread: ThreadId) -> Effort | None:
        return self._state.value.efforts.get(str(thread)) if self._count else None

    def ignored(self) -> ModelChoices:
        """Return these choices, of which none counts."""
        return ModelChoices(self._state, count=False)

    async def choose(self, thread: ThreadId, model: str | None, effort: Effort | None = None) -> None:
        """Store the choice; None is the usual. Raises `StoreUnavailable`, and nothing has changed then."""

        def choose(old: ModelsFile) -> ModelsFile:
            return ModelsFile(
                models=_with(old.models, str(thread), model), efforts=_with(old.efforts, str(thread), effort)
            )

        await self._state.change(choose)


def _with(old: Mapping[str, T], key: str, value: T | None) -> dict[str, T]:
    others = {name: choice for name, choice in old.items() if name != key}
    return others if value is None else {**others, key: value}
