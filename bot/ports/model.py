"""The one thing the agent knows about language models: values, and the Protocol of whatever completes a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import JsonValue

from threads.model import Answer, Message, OnEvent, Turn


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool. ``parameters`` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    risk: Literal["read", "write", "exec", "net"] = "read"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. The prompt is ``input`` (uncached) + ``cache_read`` + ``cache_write``.

    ``cache_write_1h`` is the part of ``cache_write`` that is kept for an hour, which some providers charge more for.
    ``hidden`` is what an answer that was cut can have had at most beyond ``output``, and counts like it.
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
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cache_write_1h + other.cache_write_1h,
            self.hidden + other.hidden,
        )


def ignore_usage(usage: Usage) -> None:
    """Count nothing: the meter of a request that nobody pays for."""


@dataclass(order=True, slots=True)
class QueuePlace:
    """The place of one call in its provider's queue, kept over all its attempts. Lower numbers go first.

    ``waited_s`` is how long the call has waited for a circuit that was open.
    """

    number: int
    waited_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Request:
    """One model call. ``messages`` end with a user entry; ``cache_key`` is the same for one thread's calls.

    ``tool_choice`` "none" keeps the tools in the prompt, and so in the cached prefix, but forbids their use.
    ``output_schema`` is a JSON Schema that the answer's text should follow. ``meter`` is told the usage so far
    whenever the provider reports it, and of a call that is cut what it can have used at most: one of which the meter
    hears nothing has cost nothing. ``last_resort`` is false when another model can be asked instead: then an open
    circuit is a failure at once, not a wait. A ``best_effort`` call is one that the turn can do without, such as a
    summary: an open circuit is a failure at once too, no other model is asked after a failure, and the failure opens
    no circuit. Without a ``place`` the call goes to the end of the provider's queue.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = 8192
    cache_key: str = ""
    tool_choice: Literal["auto", "none"] = "auto"
    output_schema: dict[str, JsonValue] | None = None
    temperature: float | None = None
    meter: Callable[[Usage], None] = ignore_usage
    last_resort: bool = True
    best_effort: bool = False
    place: QueuePlace | None = None


Stop = Literal["end", "tool_calls", "length", "pause"]
"""Why a model stopped: done, wants tools, out of tokens, or a server-side pause to be sent back unchanged."""


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer: its terminal event was seen. Refusals and overflows are raised, never returned."""

    message: Message
    usage: Usage
    stop: Stop


class Model(Protocol):
    """Anything that completes a request: adapters, and wrappers of a model."""

    @property
    def name(self) -> str:
        """``provider/model``."""
        ...

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """Stream `TextDelta`s to *on_event* and return the whole answer; raises `bot.ports.errors.ProviderError`.

        An adapter translates and classifies; it never retries, waits or logs. A wrapper may do one of these.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a model before it is asked. ``context_window`` is in tokens; None is unknown."""

    name: str
    tools: bool = True
    vision: bool = True
    streaming: bool = True
    context_window: int | None = None


class KnownModel(Model, Protocol):
    """A model of which something is known before it is asked."""

    @property
    def info(self) -> ModelInfo:
        """What the model that is asked next can do."""
        ...


class TurnModel(KnownModel, Protocol):
    """The model of one turn: it knows which candidate answers, and what the turn has used."""

    @property
    def usage(self) -> Usage:
        """All calls of this turn together, failed ones included."""
        ...

    @property
    def spent_usd(self) -> float | None:
        """What they cost; None when a price is not known."""
        ...


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
"""Keeps what a person decided about a turn's model or its money: what it was about, and the answer."""


async def record_nothing(about: Mapping[str, str], answer: Answer) -> None:
    """Keep nothing: the decision is for this turn alone."""


class Models(Protocol):
    """Where turns get their model from."""

    @property
    def name(self) -> str:
        """The model that is asked when a thread has chosen none: ``provider/model``."""
        ...

    async def for_turn(self, turn: Turn) -> TurnModel: ...
