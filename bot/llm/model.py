"""The one thing the agent knows about language models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import JsonValue

from threads.model import Message, OnEvent


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool. ``parameters`` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, JsonValue]
    risk: Literal["read", "write", "exec", "net"] = "read"


@dataclass(frozen=True, slots=True)
class Request:
    """One model call. ``messages`` end with a user entry; ``cache_key`` is the same for one thread's calls."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_tokens: int = 8192
    cache_key: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. The prompt is ``input`` (uncached) + ``cache_read`` + ``cache_write``."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


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
        """Stream `TextDelta`s to *on_event* and return the whole answer; raises `bot.errors.ProviderError`.

        An adapter translates and classifies; it never retries, waits or logs. A wrapper may do one of these.
        """
        ...
