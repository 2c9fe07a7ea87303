"""The Protocol of a tool: its name, risk and arguments, the context of a call, its output, and the model's result.

Every call goes through `bot.tools.gate`.
"""

from __future__ import annotations

import glob
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from bot.ports.errors import ToolError, ToolInvalidInput
from bot.ports.model import ToolSpec
from bot.ports.outside_text import tainted
from bot.ports.risk import Risk
from bot.wording import recoverable
from threads.model import (
    Answer,
    Author,
    File,
    Image,
    OnEvent,
    Question,
    SentFile,
    ThreadId,
    ToolCall,
    ToolResult,
    Turn,
)
from threads.store.checksummed_lines import scrub
from threads.store.data_folder import Spill

ErrorType = Literal["timeout", "permission", "not_found", "rate_limit", "validation", "exit_code", "unknown"]

ERROR_TYPES: Mapping[str, ErrorType] = {
    "tool_timeout": "timeout",
    "tool_denied": "permission",
    "sign_in_needed": "permission",
    "tool_not_found": "not_found",
    "tool_invalid_input": "validation",
    "tool_busy": "rate_limit",
    "tool_rate_limited": "rate_limit",
    "tool_exit_code": "exit_code",
}
"""What the model is told of an error, by its code; "unknown" of any other."""

_ODD = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of a call: its thread, and that thread's own workspace folder, which may not exist yet.

    ``asker`` wrote the message ``message_id`` that the call works for. ``attach`` posts a file to the thread (the
    call's id, the file, its name) and raises `threads.errors.PostFailed`. ``note`` adds a line above the answer.
    ``ask`` asks the people of the thread. ``sent_files`` and ``fetch`` are those of `threads.model.Turn`. ``spill``
    saves a long text under a name and returns its path in the workspace; it raises `StoreUnavailable`. ``tainted``
    means that the model has read text from outside, ``sees`` that it can read images. ``private`` means that the
    asker alone reads what is posted. ``deadline`` is on anyio's clock: a tool with partial output returns before it.
    ``images`` collects images for the model.
    """

    workspace: Path
    thread: ThreadId
    asker: Author
    message_id: str
    attach: Callable[[str, Path, str], Awaitable[None]]
    note: Callable[[str], None]
    ask: Callable[[Question], Awaitable[Answer | None]]
    sent_files: Callable[[], Awaitable[Sequence[SentFile]]]
    fetch: Callable[[Sequence[SentFile]], Awaitable[Sequence[File]]]
    spill: Spill
    tainted: bool
    sees: bool
    private: bool = False
    call_id: str = ""
    deadline: float = math.inf
    images: list[Image] = field(default_factory=list)

    @property
    def stem(self) -> str:
        """Return the call's id in a form for file names."""
        return _ODD.sub("-", self.call_id)[:60]

    @classmethod
    def of(cls, turn: Turn, workspace: Path, spill: Spill, *, sees: bool) -> ToolContext:
        """Return the context of a turn's calls."""
        incoming = turn.incoming
        return cls(
            workspace,
            incoming.thread,
            incoming.author,
            incoming.id,
            turn.attach,
            turn.note,
            turn.ask,
            turn.sent_files,
            turn.fetch,
            spill,
            tainted(turn.messages),
            sees,
            private=incoming.via == "direct",
        )


def _lean(schema: dict[str, Any]) -> None:
    """Remove the parts of a tool's schema that a model does not need: it is in the prompt of every call.

    Titles repeat the names, and an argument that is out of bounds gets an error anyway.
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
    """The validated input of a tool, with the text that rules and permissions match."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, json_schema_extra=_lean)

    def subject(self) -> str:
        """Return the text that a rule's pattern matches: the command, the path, the address."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)

    def always(self) -> str:
        """Return the pattern that "always here" allows: exactly this call, unless a tool overrides it."""
        return glob.escape(self.subject())


@dataclass(frozen=True, slots=True)
class ItemError:
    """An error of one item in a call that worked for others."""

    item: str
    type: ErrorType
    message: str


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The output of a tool, if it is more than a value.

    ``origin`` names the source of text from outside ("web page", "file", "MCP server x"): such text is fenced and
    taints the turn. ``images`` are files of the workspace for the model.
    """

    result: JsonValue
    errors: tuple[ItemError, ...] = ()
    origin: str = ""
    images: tuple[Image, ...] = ()


class Tool(Protocol):
    """A tool for models. ``arguments`` is the pydantic model of its input: each call gets such a one."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def risk(self) -> Risk: ...

    @property
    def arguments(self) -> type[Arguments]: ...

    async def __call__(self, arguments: Any, context: ToolContext) -> JsonValue | ToolOutput:
        """Return the result for the model; raises `bot.ports.errors.ToolError`."""


@runtime_checkable
class Checking(Protocol):
    """A tool that can tell beforehand that a call is in vain, so that nobody is asked for it."""

    async def check(self, arguments: Any, context: ToolContext) -> None:
        """Raise a `bot.ports.errors.ToolError` if the call cannot work."""


@runtime_checkable
class Changing(Protocol):
    """A tool that somebody else can change: a person is asked before a call of what they have not seen."""

    @property
    def news(self) -> str:
        """Return what is new about it, in words for people; "" once it is accepted."""

    async def accept(self) -> None:
        """Take note that a person has let it be used as it is now."""


class Tools(Protocol):
    """The agent's view of its tools; `bot.tools.gate.Toolbox` implements it."""

    specs: tuple[ToolSpec, ...]
    """Their descriptions for the model, always in the same order."""

    async def run(
        self, calls: Sequence[ToolCall], context: ToolContext, on_event: OnEvent
    ) -> list[ToolResult]:
        """Run the calls of one step and return their results in the same order; raises no failure."""

    def waits(self, call: ToolCall, context: ToolContext) -> bool:
        """Return whether the call waited for a person when the last process ended, so it has not run."""


def arguments_of(tool: Tool, call: ToolCall) -> Arguments:
    """Return the validated arguments of a call; raises `ToolInvalidInput`."""
    if call.malformed:
        raise ToolInvalidInput("The arguments were not a JSON object.", suggestion="Send valid JSON.")
    try:
        return tool.arguments.model_validate(call.arguments)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, f['loc'])) or 'arguments'}: {f['msg']}" for f in error.errors()
        )
        raise ToolInvalidInput(faults, suggestion="Fix the arguments and call again.") from error


def failed(call: ToolCall, error: ToolError) -> ToolResult:
    """Return the result of a failed call."""
    return ToolResult(call.id, scrub(dumped(error_body(error))), is_error=True)


def error_body(error: ToolError, message: str = "", suggestion: str = "") -> dict[str, JsonValue]:
    """Return ``{"success": false, "error": …}``. A *message* or *suggestion* replaces the error's own."""
    described: dict[str, JsonValue] = {
        "type": ERROR_TYPES.get(error.code, "unknown"),
        "message": message or str(error),
        "recoverable": recoverable(error.code),
        "suggestion": suggestion or error.suggestion,
    }
    return {"success": False, "error": described}


def timed_out(result: ToolResult) -> bool:
    """Return whether a call ran out of time, from its `error_body`. The body of a fenced result is text in text."""
    return result.is_error and '"type": "timeout"' in result.content[:400].replace('\\"', '"')


def dumped(result: dict[str, JsonValue]) -> str:
    """Return the JSON of a result, with non-ASCII letters as they are."""
    return json.dumps(result, ensure_ascii=False)
