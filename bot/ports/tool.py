"""What a tool is: its name, its risk, its arguments, where a call runs, and what it gives back.

The gate that every call goes through is `bot.tools.gate`.
"""

from __future__ import annotations

import glob
import json
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from bot.ports.errors import ToolInvalidInput
from bot.ports.model import ToolSpec
from bot.ports.outside_text import tainted
from threads.errors import StoreUnavailable, TransportRejected
from threads.model import Answer, Author, Image, OnEvent, Question, ThreadId, ToolCall, ToolResult, Turn
from threads.store.data_folder import Spill

Risk = Literal["read", "write", "exec", "net"]
ErrorType = Literal["timeout", "permission", "not_found", "rate_limit", "validation", "unknown"]

_ODD = re.compile(r"[^A-Za-z0-9_-]+")

NOWHERE = ThreadId("", "", "", "")
SOMEBODY = Author("")


async def nowhere(_call_id: str, _file: Path, _name: str) -> None:
    raise TransportRejected("there is no thread to post to")


async def nobody(_question: Question) -> Answer | None:
    """Nobody can be asked."""


async def unkept(name: str, text: str, *, outside: bool) -> str:  # noqa: ARG001
    raise StoreUnavailable("there is no folder for it")


def unsaid(_text: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where a call runs: its thread, and that thread's own workspace folder, which may not exist yet.

    ``asker`` wrote the message ``message_id`` that the call works for. ``attach`` posts a file to the thread: the
    call's id, the file, its name; raises `threads.errors.PostFailed`. ``note`` has something said once above the
    answer, ``ask`` asks the people of the thread, ``spill`` keeps a long text under a name and returns its path in
    the workspace (raises `StoreUnavailable`). ``tainted``: the model has read text from outside; ``sees``: it can be
    shown pictures. ``deadline`` is on anyio's clock: a tool that can give back a part ends by itself before it.
    ``images`` collects what the model is to be shown besides the results.
    """

    workspace: Path
    thread: ThreadId = NOWHERE
    asker: Author = SOMEBODY
    message_id: str = ""
    attach: Callable[[str, Path, str], Awaitable[None]] = nowhere
    note: Callable[[str], None] = unsaid
    ask: Callable[[Question], Awaitable[Answer | None]] = nobody
    spill: Spill = unkept
    tainted: bool = False
    sees: bool = True
    call_id: str = ""
    deadline: float = math.inf
    images: list[Image] = field(default_factory=list)

    @property
    def stem(self) -> str:
        """Return what a file that the call leaves behind is named after: its id, with nothing in it that is odd."""
        return _ODD.sub("-", self.call_id)[:60]

    @classmethod
    def of(cls, turn: Turn, workspace: Path, spill: Spill, *, sees: bool) -> ToolContext:
        """Return the place of a turn's calls."""
        incoming = turn.incoming
        return cls(
            workspace,
            incoming.thread,
            incoming.author,
            incoming.id,
            turn.attach,
            turn.note,
            turn.ask,
            spill,
            tainted(turn.messages),
            sees,
        )


def _lean(schema: dict[str, Any]) -> None:
    """Take out of a tool's schema what a model has no use for: it is in the prompt of every call.

    Titles repeat the names; a bound that only keeps out nonsense is told when it is overstepped.
    """
    for name in ("title", "description"):
        schema.pop(name, None)
    for given in schema.get("properties", {}).values():
        for name in ("title", "maxLength", "minLength"):
            given.pop(name, None)
        if given.get("default", ...) in ("", False, None):
            del given["default"]
        kinds = [kind for kind in given.get("anyOf", ()) if kind != {"type": "null"}]
        if len(kinds) == 1:  # may be left out, which needs no null
            del given["anyOf"]
            given.update(kinds[0])


class Arguments(BaseModel):
    """The input of a tool, validated. What rules and standing permissions are matched with is its own to say."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_lean)

    def subject(self) -> str:
        """Return what a rule's pattern is matched with: the command, the path, the address."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)

    def always(self) -> str:
        """Return the pattern that "always here" would allow: only just this, unless a tool knows better."""
        return glob.escape(self.subject())


@dataclass(frozen=True, slots=True)
class ItemError:
    """What went wrong with one item of a call that worked for others."""

    item: str
    type: ErrorType
    message: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gives back where it is more than a value.

    ``origin`` names where text in it came from, if that was outside ("web page", "file", "MCP server x"): it is
    fenced, and the turn is tainted from then on. ``images`` are files of the workspace to be shown to the model.
    """

    result: JsonValue
    errors: tuple[ItemError, ...] = ()
    origin: str = ""
    images: tuple[Image, ...] = ()


class Tool(Protocol):
    """Something a model may ask for. ``arguments`` is the pydantic model of its input."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def risk(self) -> Risk: ...

    @property
    def arguments(self) -> type[Arguments]: ...

    async def __call__(self, arguments: Arguments, place: ToolContext) -> JsonValue | ToolOutput:
        """Return what the model should read; raises `bot.ports.errors.ToolError`."""
        ...


class Tools(Protocol):
    """What the agent knows of its tools; `bot.tools.gate.Toolbox` is the one there is."""

    specs: tuple[ToolSpec, ...]
    """What the model is told of them, always in the same order."""

    async def run(self, calls: Sequence[ToolCall], place: ToolContext, on_event: OnEvent) -> list[ToolResult]:
        """Run the calls of one step and return their results in the order asked; no failure is raised."""
        ...

    def waits(self, call: ToolCall, place: ToolContext) -> bool:
        """Return whether the call waited for a person when the last process ended, and so has not run."""
        ...


def arguments_of(tool: Tool, call: ToolCall) -> Arguments:
    """Return a call's arguments, validated. Raises `ToolInvalidInput`."""
    if call.malformed:
        raise ToolInvalidInput("The arguments were not a JSON object.", suggestion="Send valid JSON.")
    try:
        return tool.arguments.model_validate(call.arguments)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, f['loc'])) or 'arguments'}: {f['msg']}" for f in error.errors()
        )
        raise ToolInvalidInput(faults, suggestion="Mend the arguments and call again.") from error
