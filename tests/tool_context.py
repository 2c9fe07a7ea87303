"""A gate that permits every call, and contexts of calls outside a turn: nobody to ask, nowhere to post or save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bot.config.built_in_extensions import BUILT_IN
from bot.guards.redaction import Masker
from bot.ports.tool import Arguments, Tool, ToolContext
from bot.tools.gate import Permits, Toolbox
from threads.errors import StoreUnavailable, TransportRejected
from threads.model import Answer, Author, Question, ThreadId
from threads.store.disk import Offload


async def nowhere(_call_id: str, _file: Path, _name: str) -> None:
    raise TransportRejected("there is no thread to post to")


async def nobody(_question: Question) -> Answer | None:
    """Return None: there is nobody to ask."""


async def no_files(*_sent: object) -> list[Any]:
    return []


async def no_spill(_name: str, _text: str, *, outside: bool) -> str:
    raise StoreUnavailable("there is no folder for it")


def tool_context(
    workspace: Path = Path("/nowhere"),
    thread: ThreadId = ThreadId("", "", "", ""),
    asker: Author = Author(""),
    message_id: str = "",
    **options: Any,
) -> ToolContext:
    """Return the context of a call; *options* replace its other fields."""
    options = {
        "attach": nowhere,
        "note": lambda _text: None,
        "ask": nobody,
        "sent_files": no_files,
        "fetch": no_files,
        "spill": no_spill,
        "tainted": False,
        "sees": True,
        **options,
    }
    return ToolContext(workspace, thread, asker, message_id, **options)


async def unheard(_event: object) -> None:
    """Ignore an event of a call."""


class PermitAll:
    """Permits every call."""

    async def permit(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        """Return at once."""

    def waits(self, tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
        return False


def file_tools(offload: Offload, *, posts: bool = False) -> list[Tool]:
    """Return the tools that read files, and the one that *posts* them; none where their extension was deleted."""
    if not BUILT_IN["files"].is_here:
        return []
    from bot.extensions.files.attach import Attach  # noqa: PLC0415 - it may be deleted
    from bot.extensions.files.read import ListFiles, ReadFile  # noqa: PLC0415

    return [ReadFile(offload), ListFiles(offload), *([Attach(offload, Masker())] if posts else [])]


def make_toolbox(
    tools: Sequence[Tool],
    *,
    timeout_s: float = 5,
    per_tool: Mapping[str, float] = MappingProxyType({}),
    permits: Permits | None = None,
    **options: Any,
) -> Toolbox:
    """Return a gate to *tools*, each of which may take *timeout_s* unless *per_tool* has another time."""
    options = {"mask": str, "off": {}, **options}
    return Toolbox(
        tools, timeout_s=per_tool, default_timeout_s=timeout_s, permits=permits or PermitAll(), **options
    )
