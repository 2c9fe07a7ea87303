"""The context of a tool call outside a turn: nobody to ask, no thread to post to, no folder for long results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.ports.tool import ToolContext
from threads.errors import StoreUnavailable, TransportRejected
from threads.model import Answer, Author, Question, ThreadId


async def nowhere(_call_id: str, _file: Path, _name: str) -> None:
    raise TransportRejected("there is no thread to post to")


async def nobody(_question: Question) -> Answer | None:
    """Return None: there is nobody to ask."""


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
        "spill": no_spill,
        "tainted": False,
        "sees": True,
        **options,
    }
    return ToolContext(workspace, thread, asker, message_id, **options)


async def unheard(_event: object) -> None:
    """Listen to the events of a call, and do nothing."""
