"""What answers turns in a running bot, for an extension that answers turns of its own with models and tools."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from bot.agent.loop import Agent
from bot.agent.prompt.transcripts import ToText
from bot.config.settings import Settings
from bot.ports.model import Models
from threads.model import Incoming

ChangeOf = Callable[[Settings], Settings]


class PaidModels(Models, Protocol):
    """Models with all their policies. ``to_text`` writes down what recordings say."""

    @property
    def to_text(self) -> ToText: ...


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
