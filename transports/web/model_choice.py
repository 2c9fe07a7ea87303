"""Which models a thread of the page may choose, with their prices, and which one answers in it now."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
from pydantic import JsonValue

from bot.config.scopes import CurrentSettings
from bot.llm.catalog import Catalog
from bot.store.model_choice import ModelsFile
from threads.model import ThreadId
from threads.store.json_file import States


class ModelList:
    """The models with these *names*, the usual one first."""

    def __init__(self, current: CurrentSettings, names: Sequence[str], states: States) -> None:
        self._current, self._names, self._states = current, names, states

    async def of(self, thread: ThreadId) -> JsonValue:
        """Return the models that a thread may choose, and its own choice. Raises OSError and `StoreUnavailable`."""
        chosen = (await self._states.open("models", ModelsFile())).value
        return {
            "models": await anyio.to_thread.run_sync(self._described),
            "chosen": chosen.models.get(str(thread), self._names[0] if self._names else ""),
            "effort": chosen.efforts.get(str(thread), ""),
        }

    def _described(self) -> list[JsonValue]:
        catalog = Catalog.of(self._current.settings)
        return [_described(catalog, name) for name in self._names]


def _described(catalog: Catalog, name: str) -> JsonValue:
    """Return what is known of a model; prices are USD for a million tokens of a prompt and of an answer."""
    info, prices = catalog.info(name), catalog.prices(name)
    return {
        "name": name,
        "prices": [*(prices or ())],
        "window": info.context_window,
        "efforts": [*info.efforts],
    }
