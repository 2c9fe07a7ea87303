"""The conversation as a model sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, JsonValue


@dataclass(frozen=True, slots=True)
class Text:
    """``outside``: it was not typed by anybody who may give orders here."""

    text: str
    type: Literal["text"] = "text"
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Thinking:
    """A provider's reasoning. ``raw`` goes back byte-identical, and only to the model that wrote it."""

    text: str
    model: str
    raw: dict[str, JsonValue] = field(default_factory=dict)
    type: Literal["thinking"] = "thinking"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish. ``malformed`` is the raw text of arguments that were no JSON object: never run those."""

    id: str
    name: str
    arguments: dict[str, JsonValue]
    malformed: str = ""
    type: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back. ``content`` is the JSON result as text, exactly as the model reads it.

    ``outside``: it holds text from the web, a file that came, or another program.
    """

    call_id: str
    content: str
    is_error: bool = False
    type: Literal["tool_result"] = "tool_result"
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """A picture. ``file`` is its path in the thread's workspace; ``data`` is read for a request and never stored."""

    file: str
    media_type: str
    data: Annotated[bytes, Field(exclude=True)] = b""
    type: Literal["image"] = "image"


Block = Annotated[Text | Thinking | ToolCall | ToolResult | Image, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation as the model sees it.

    ``source`` is the id of the incoming message that a user entry came from, or that an assistant entry is the
    final answer to, so that a turn served again after a crash recognises both; ``model`` is the
    ``provider/model`` that wrote an assistant entry, and ``tokens`` how long the conversation was with it, system
    prompt and tools included, as that provider counted; 0 is unknown. ``at`` is when it was added (UTC, ISO 8601):
    for `why`, no part of what a model reads.
    """

    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...]
    source: str = ""
    model: str = ""
    tokens: int = 0
    at: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def calls(self) -> list[ToolCall]:
        return [block for block in self.blocks if isinstance(block, ToolCall)]

    @property
    def results(self) -> list[ToolResult]:
        return [block for block in self.blocks if isinstance(block, ToolResult)]
