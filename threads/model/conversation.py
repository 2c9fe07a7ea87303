"""The conversation as a model sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, Literal, TypeVar, cast

from pydantic import Field, JsonValue

from .ids import is_of_platform, time_of

Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class Text:
    """``outside``: the text comes from outside the thread, so it may not give orders."""

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
    """A call that the model asks for.

    ``malformed`` is the raw text of arguments that are not a JSON object. Never run such a call.
    """

    id: str
    name: str
    arguments: dict[str, JsonValue]
    malformed: str = ""
    type: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call. ``content`` is JSON, exactly as the model reads it.

    ``outside``: it holds text from the web, from an attached file, or from another program.
    """

    call_id: str
    content: str
    is_error: bool = False
    type: Literal["tool_result"] = "tool_result"
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """A picture. ``file`` is its path in the thread's workspace. ``data`` is read for each request, never stored."""

    file: str
    media_type: str
    data: Annotated[bytes, Field(exclude=True)] = b""
    type: Literal["image"] = "image"


Block = Annotated[Text | Thinking | ToolCall | ToolResult | Image, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation as the model sees it.

    ``source`` is the id of the incoming message: the one that a user entry comes from, or that an assistant entry is
    the final answer to. A turn that runs again after a crash recognises its entries by it. ``model`` is the
    ``provider/model`` that wrote an assistant entry. ``tokens`` is the length of the conversation up to this entry,
    system prompt and tools included, as that provider counted it; 0 if unknown. ``at`` is when the entry was added
    (UTC, ISO 8601). `why` shows it, and no model reads it. ``setup`` is what the turn of a user entry ran with, blank
    where nothing changed (see `bot.agent.prompt.setup_changes`); no model reads it either. ``upto`` is the id of the
    newest line of the thread that the entry quotes or sums up, blank if it has none.
    """

    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...]
    source: str = ""
    model: str = ""
    tokens: int = 0
    at: str = field(default="", compare=False)
    setup: str = field(default="", compare=False)
    upto: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    def stamped(self, at: str) -> Message:
        """Return this message, added *at* that time."""
        # Not `dataclasses.replace`: it takes half as long again, and every message is stamped.
        return Message(
            self.role, self.blocks, self.source, self.model, self.tokens, at, self.setup, self.upto
        )

    @property
    def calls(self) -> list[ToolCall]:
        return [block for block in self.blocks if isinstance(block, ToolCall)]

    @property
    def results(self) -> list[ToolResult]:
        return [block for block in self.blocks if isinstance(block, ToolResult)]


Fact = Callable[[Known | None, Sequence[Message]], Known]
"""Returns what is known about a conversation, never None.

It gets what was known before, None at first, and the messages that are new since then.
"""


class History(list[Message]):
    """A conversation that knows what was read in it, so that a turn does not read a long one from its beginning.

    Change it only with `extend` and `replace`.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[object, tuple[int, object]] = {}

    def replace(self, messages: Sequence[Message]) -> None:
        """Replace all messages, and forget what was known about the old ones."""
        self[:] = messages
        self._known.clear()

    def known(self, fact: Fact[Known]) -> Known:
        """Return a fact, after reading only what is new since the last time."""
        read, before = self._known.get(fact, (0, None))
        if before is None or read < len(self):
            before = fact(cast("Known | None", before), self[read:])
            self._known[fact] = len(self), before
        return cast("Known", before)


def known(messages: Sequence[Message], fact: Fact[Known]) -> Known:
    """Return a fact about any messages."""
    return messages.known(fact) if isinstance(messages, History) else fact(None, messages)


def places_of(messages: Sequence[Message], source: str) -> list[int]:
    """Return the indexes of the messages with this source."""
    if source not in known(messages, _sources):
        return []
    return [place for place, message in enumerate(messages) if message.source == source]


def put_again(
    messages: Sequence[Message], replaced: str, source: str, text: str
) -> tuple[int, list[Message]]:
    """Return where the conversation has a message, and what people said in its turn, for a turn of another *source*.

    The message says *text* instead, if that has words. Its files stay. Where it is not known, nothing was said.
    """
    places = places_of(messages, replaced) or [0]
    turn = messages[places[0] : places[-1] + 1]
    said = [message for message in turn if message.role == "user" and message.source]
    if not said or said[0].source != replaced:
        return 0, []
    # What joined its turn is a part of the new one, as a stage of a playbook is.
    joined = [replace(one, source=f"{source}.{one.source.rpartition('.')[2]}") for one in said[1:]]
    blocks = [*said[0].blocks]
    words = [place for place, block in enumerate(blocks) if isinstance(block, Text) and not block.outside]
    if text.strip():
        blocks[words[-1]] = Text(text)
    return places[0], [replace(said[0], source=source, blocks=tuple(blocks)), *joined]


def _sources(before: set[str] | None, new: Sequence[Message]) -> set[str]:
    sources = set() if before is None else before
    sources.update(map(attrgetter("source"), new))
    return sources


def read_upto(messages: Sequence[Message]) -> str:
    """Return the id of the newest message of the thread that the conversation has, blank if no id is known."""
    return known(messages, _read_upto)


def _read_upto(before: str | None, new: Sequence[Message]) -> str:
    ids = [before or "", *(id_ for message in new for id_ in (message.source, message.upto))]
    in_order = enumerate(filter(is_of_platform, ids))
    return max(in_order, key=lambda one: (time_of(one[1]) or 0, one[0]), default=(0, ""))[1]
