"""The events of the running bot for programs outside: one model for each kind, and the schema of them all.

Names of kinds and fields do not change between versions; new ones may come. A line has no author, and no text of a
person or a model. ``correlation_id`` names the turn, as ``(ref …)`` does in the thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from bot.ports.errors import ErrorReport
from threads.model import Outcome


class _Line(BaseModel):
    """``seq`` grows by one from event to event, and is larger after a restart. ``at`` is UTC, ISO 8601.

    The ids are blank where nothing is known of a thread, a message or a turn.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    seq: int
    at: str
    thread_id: str = ""
    message_id: str = ""
    correlation_id: str = ""


class _WorkLine(_Line):
    """Work that began, or ended after so many seconds with an outcome: ok, partial, or the code of an error."""

    state: Literal["began", "ended"]
    seconds: float | None = None
    outcome: str | None = None


class TurnLine(_WorkLine):
    """A turn. ``attempt`` is above 1 after a restart. ``steps`` is known at its end."""

    kind: Literal["turn"] = "turn"
    transport: str
    attempt: int
    steps: int | None = None


class StepLine(_WorkLine):
    """A step of a turn, counted from 1. ``from_model`` was replaced by ``model`` in it."""

    kind: Literal["step"] = "step"
    step: int
    model: str
    from_model: str | None = None


class ToolLine(_WorkLine):
    """A call of a tool, without its arguments and its result."""

    kind: Literal["tool"] = "tool"
    tool: str
    call_id: str = ""


class ModelCallLine(_WorkLine):
    """A model call that ended. ``attempt`` counts the calls of this model in its step."""

    kind: Literal["model_call"] = "model_call"
    model: str
    attempt: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None = None


class _FailureLine(_Line):
    """A failure. ``event`` is the name of its line in the log; ``error`` is its report, without the message."""

    event: str
    code: str = ""
    error: ErrorReport | None = None


class RetryLine(_FailureLine):
    """Something failed and is tried again: the coming ``attempt`` begins in ``wait_s`` seconds."""

    kind: Literal["retry"] = "retry"
    attempt: int
    wait_s: float
    model: str = ""
    transport: str = ""
    server: str = ""
    tool: str = ""


class FailoverLine(_FailureLine):
    """A model is left out, or ``model`` takes over from ``from_model``."""

    kind: Literal["failover"] = "failover"
    model: str = ""
    from_model: str = ""


class FailureLine(_FailureLine):
    """A failure without a retry: of a turn (``event`` is turn.failed), a tool, or another part of the bot."""

    kind: Literal["failure"] = "failure"
    tool: str = ""
    server: str = ""
    transport: str = ""
    more_before: int = 0
    """Failures like this that were left out before it, because there were too many."""


class BudgetLine(_Line):
    """A limit: ``warning`` and ``passed`` say once how much is spent, ``paused`` asks a person, who then decides.

    ``scope`` is turn, thread, user_day, schedule_day, day or month; several are separated by commas.
    """

    kind: Literal["budget"] = "budget"
    state: Literal["warning", "passed", "paused", "granted", "declined"]
    scope: str
    spent_usd: float | None = None
    limit_usd: float | None = None
    needed_usd: float | None = None
    granted_usd: float | None = None
    error: ErrorReport | None = None


class CircuitLine(_Line):
    """The circuit of a model opened, because of ``error``, or closed.

    ``key`` is the number of the provider's key, from 1, if it has several.
    """

    kind: Literal["circuit"] = "circuit"
    state: Literal["opened", "closed"]
    model: str
    key: int = 0
    code: str = ""
    error: ErrorReport | None = None


class SettledLine(_Line):
    """A message has its outcome, durably. ``seconds`` since it arrived, if a turn ran for it."""

    kind: Literal["settled"] = "settled"
    transport: str
    outcome: Outcome
    seconds: float | None = None


class GapLine(_Line):
    """``lost`` events up to and with ``seq`` are missing. It is left out if nobody knows, as after a restart.

    After a ``final`` one nothing follows: the reader was too slow.
    """

    kind: Literal["gap"] = "gap"
    lost: int | None = None
    final: bool = False


EventLine = (
    TurnLine
    | StepLine
    | ToolLine
    | ModelCallLine
    | RetryLine
    | FailoverLine
    | FailureLine
    | BudgetLine
    | CircuitLine
    | SettledLine
    | GapLine
)

KINDS: tuple[str, ...] = tuple(one.model_fields["kind"].default for one in get_args(EventLine))


@cache
def event_adapter() -> TypeAdapter[EventLine]:
    """Return the validator of a line, built on first use."""
    return TypeAdapter(Annotated[EventLine, Field(discriminator="kind")])


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of `threadfast events`",
        **event_adapter().json_schema(mode="serialization"),
    }


def encode(
    line: EventLine, clean: Callable[[dict[str, JsonValue]], Mapping[str, JsonValue]] = lambda line: line
) -> bytes:
    """Return the line as JSON in ASCII, so that no letter in it can act on a terminal. *clean* masks secrets."""
    known = {"kind": line.kind, "seq": line.seq, "at": line.at}
    rest = clean(line.model_dump(mode="json", exclude_none=True, exclude={*known}))
    return f"{json.dumps({**known, **rest})}\n".encode()
