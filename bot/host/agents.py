"""What answers turns in a running bot, for an extension that answers turns of its own with models and tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from bot.agent.loop import Agent
from bot.budget.accounts import Account
from bot.config.settings import Settings
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.catalog import Catalog
from bot.ports.model import Model, Models
from threads.model import File, Incoming, Turn

ChangeOf = Callable[[Settings], Settings]


class PaidModels(Models, Protocol):
    """Models with all their policies. ``to_text`` writes down what recordings say."""

    async def to_text(self, turn: Turn, files: Sequence[File]) -> list[File]: ...


class Agents(Protocol):
    """The agents of a bot. *tools* are the names of the only tools, None for all that the place has."""

    async def usual(self, incoming: Incoming, tools: Collection[str] | None = None) -> Agent:
        """Return the agent that would answer a message."""
        ...

    def models_under(
        self, change: ChangeOf, incoming: Incoming, tools: Collection[str] | None, *, chosen: bool
    ) -> PaidModels:
        """Return the models for a message under its settings with a change.

        Without *chosen* the thread's choice does not count. It raises `bot.ports.config_error.ConfigInvalid` then if
        a model of the settings cannot be used.
        """
        ...


class PlaceModels(Protocol):
    """The models where a turn takes place. ``catalog`` knows what they cost there, ``http`` connects to them.

    ``with_policies`` returns a model that an extension makes, with the budget, the retries, the keys and the queue of
    all others, for one turn. It is made for each key of its provider; it has to reserve and commit what a call costs.
    """

    @property
    def catalog(self) -> Catalog: ...

    @property
    def http(self) -> SharedHttp: ...

    async def with_policies(
        self, turn: Turn, name: str, metered: Callable[[Account, int], Model]
    ) -> Model: ...
