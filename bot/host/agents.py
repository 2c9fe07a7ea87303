"""What answers turns in a running bot, for an extension that answers turns of its own with models and tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from bot.agent.loop import Agent
from bot.budget.accounts import Account
from bot.config.settings import Settings, StreamTimeouts
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.catalog import Catalog
from bot.ports.model import Model, Models
from threads.model import File, Incoming, Turn, WallClock

if TYPE_CHECKING:
    from bot.host.extension import OwnTurns


class MakeModel(Protocol):
    """Makes the model ``provider/model``. Called once for each key of the provider, before the first call.

    *api_key* is read for each request; it returns None where the settings name no key. *timeouts* are those of
    `stream_timeouts_s`, *vision* tells whether the model may get pictures, and *params* are more parameters of each
    request. Raises `bot.ports.config_error.ConfigInvalid` if the settings cannot be used.
    """

    def __call__(
        self,
        provider: str,
        model: str,
        *,
        api_key: Callable[[], str | None],
        base_url: str | None,
        http: SharedHttp,
        timeouts: StreamTimeouts,
        now: WallClock,
        vision: bool,
        params: Mapping[str, JsonValue],
    ) -> Model: ...


ChangeOf = Callable[[Settings], Settings]


class PaidModels(Models, Protocol):
    """Models with all their policies. ``to_text`` writes down what recordings say."""

    async def to_text(self, turn: Turn, files: Sequence[File]) -> list[File]: ...


class Agents(Protocol):
    """The agents of a bot. *tools* are the names of the only tools, None for all that the place has."""

    @property
    def own_turns(self) -> Mapping[str, OwnTurns]: ...

    async def usual(self, incoming: Incoming, tools: Collection[str] | None = None) -> Agent:
        """Return the agent that would answer a message."""

    def models_under(
        self, change: ChangeOf, incoming: Incoming, tools: Collection[str] | None, *, chosen: bool
    ) -> PaidModels:
        """Return the models for a message under its settings with a change.

        Without *chosen* the thread's choice does not count. It raises `bot.ports.config_error.ConfigInvalid` then if
        a model of the settings cannot be used.
        """


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
