"""A model that is the only one there is: what every turn gets, and what commands may ask about it."""

from __future__ import annotations

from bot.agent.prompt.user_message import read_nothing
from bot.ports.model import Completion, Model, ModelInfo, Request, Usage
from threads.model import OnEvent, ThreadId, Turn


class OneModel:
    """The rest of a `TurnModel`, a `Models` and a `ModelCommands`, for a class that has ``complete``."""

    name = "fake/one"
    usage = Usage()
    spent_usd = 0.0
    window: int | None = None

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self.name, context_window=self.window)

    async def prepare(self) -> None:
        """Nothing is loaded before its first call."""

    async def for_turn(self, turn: Turn):
        return self

    def describe_model(self, thread: ThreadId) -> str:
        return f"Model: {self.name}."

    def list_models(self, thread: ThreadId) -> str:
        return f"{self.describe_model(thread)} It is the only one."

    async def choose_model(self, thread: ThreadId, name: str, conversation: object) -> str:
        return f"{self.name} is all there is."

    async def describe_usage(self, thread: ThreadId, user: str) -> str:
        return "Nothing is counted here."

    def servers(self):
        return []

    def circuits(self):
        return []

    def under(self, terms: object):
        return self

    def check(self) -> None:
        """Have no faults."""

    to_text = staticmethod(read_nothing)

    def is_chosen(self, thread: ThreadId) -> bool:
        return False


class Only(OneModel):
    """Any model as the only one."""

    def __init__(self, model: Model) -> None:
        self._model, self.name = model, model.name

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        return await self._model.complete(request, on_event)


async def unspilled(name: str, text: str, *, outside: bool) -> str:
    return f"tool-output/{name}"
