"""Language models as the agent knows them: the values of a call, and the Protocol of a model."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import add, attrgetter, sub
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from bot.ports.effort import EFFORTS, Effort
from threads.model import Answer, Message, OnEvent, Turn


@dataclass(frozen=True)
class ToolSpec:
    """The description of a tool for a model. ``parameters`` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, JsonValue]

    @cached_property
    def text(self) -> str:
        """All that a model reads of it; each prompt is measured by it."""
        return f"{self.name}{self.description}{json.dumps(self.parameters, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. The prompt is ``input`` (uncached) + ``cache_read`` + ``cache_write``.

    ``cache_write_1h`` is the part of ``cache_write`` with a lifetime of an hour, which can cost more. ``hidden`` is
    an upper bound of the output beyond ``output`` of an interrupted answer; it counts like output.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    hidden: int = 0

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, _counts(self), _counts(other)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*map(sub, _counts(self), _counts(other)))


_counts = attrgetter(*(one.name for one in fields(Usage)))
"""Each usage is added up several times a call, and `dataclasses.astuple` copies deeply."""


def ignore_usage(usage: Usage) -> None:
    """Do nothing: the meter of a call that nobody pays for."""


@dataclass(frozen=True, slots=True)
class AnswerRoom:
    """The most ``tokens`` of an answer; None if the server does not say how many.

    ``window`` is that of prompt and answer together, if the prompt is what leaves no more.
    """

    tokens: int | None = None
    window: int | None = None


class QueuePlace(NamedTuple):
    """The place of one call in its provider's queue, kept over all its attempts. Lower numbers go first."""

    number: int
    since: float
    """When the call began, on the gate's clock."""


@dataclass(frozen=True, slots=True)
class Request:
    """One model call. ``messages`` end with a user entry; ``cache_key`` is the same for one thread's calls.

    ``tool_choice`` "none" keeps the tools in the prompt, and so in the cached prefix, but forbids their use.
    ``output_schema`` is a JSON Schema for the answer's text. ``reasoning`` None is the model's own. ``meter`` is
    called with the usage so far whenever the provider reports it, and with an upper bound if the call is interrupted;
    a call that never calls it costs nothing.
    ``last_resort`` is false if another model can be asked instead: then an open circuit fails at once. With
    ``other_key`` another key of the provider can: then a rate limit, or an account that is refused, fails at once. A
    ``best_effort`` call, such as a summary, is one that the turn can do without: an open circuit fails at once, no
    other model is asked, and its failure opens no circuit. Without a ``place`` the call goes to the end of the
    provider's queue. ``forms`` are those that the server takes, by part, see `bot.llm.server_traits`.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = 8192
    cache_key: str = ""
    tool_choice: Literal["auto", "none"] = "auto"
    output_schema: dict[str, JsonValue] | None = None
    temperature: float | None = None
    reasoning: Effort | None = None
    meter: Callable[[Usage], None] = ignore_usage
    last_resort: bool = True
    other_key: bool = False
    best_effort: bool = False
    place: QueuePlace | None = None
    forms: Mapping[str, str] = field(default_factory=dict)


Stop = Literal["end", "tool_calls", "length", "pause"]
"""Why a model stopped: done, tool calls, out of tokens, or a pause of the server, to be sent back unchanged."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete answer. Refusals and overflows are raised, never returned."""

    message: Message
    usage: Usage
    stop: Stop


class Model(Protocol):
    """Completes requests: an adapter, or a wrapper of another model."""

    @property
    def name(self) -> str:
        """``provider/model``."""

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """Stream `TextDelta`s to *on_event* and return the complete answer; raises `bot.ports.errors.ProviderError`.

        An adapter only translates and classifies errors. Wrappers retry, wait and log.
        """


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The capabilities of a model. ``context_window`` is in tokens; None is unknown.

    ``efforts`` are the values of `Request.reasoning` that it takes. ``reasoning_tokens`` is the most that it reasons
    beyond `Request.max_tokens`.
    """

    name: str
    tools: bool = True
    vision: bool = True
    streaming: bool = True
    context_window: int | None = None
    efforts: tuple[Effort, ...] = EFFORTS
    reasoning_tokens: int = 0


class KnownModel(Model, Protocol):
    """A model with known capabilities."""

    @property
    def info(self) -> ModelInfo:
        """The capabilities of the model that is asked next."""


class TurnModel(KnownModel, Protocol):
    """The model of one turn, with the usage of that turn."""

    @property
    def usage(self) -> Usage:
        """The sum of all calls of this turn, failed ones included."""

    @property
    def spent_usd(self) -> float | None:
        """The cost of these calls; None if a price is unknown."""


@dataclass(frozen=True, slots=True)
class ModelWrapper:
    """The base of a wrapper of a `Model`: all but `complete`."""

    model: Model

    @property
    def name(self) -> str:
        return self.model.name


@dataclass(frozen=True, slots=True)
class TurnModelWrapper(ModelWrapper):
    """The base of a wrapper of a `TurnModel`: all but `complete`."""

    model: TurnModel

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    @property
    def usage(self) -> Usage:
        return self.model.usage

    @property
    def spent_usd(self) -> float | None:
        return self.model.spent_usd


RecordDecision = Callable[[Mapping[str, str], Answer], Awaitable[None]]
"""Records a person's decision about a turn's model or budget: its subject and the answer."""


async def record_nothing(about: Mapping[str, str], answer: Answer) -> None:
    """Record nothing."""


class Models(Protocol):
    """The source of each turn's model."""

    @property
    def name(self) -> str:
        """The default model, ``provider/model``; a thread can choose another."""

    async def for_turn(self, turn: Turn) -> TurnModel: ...
