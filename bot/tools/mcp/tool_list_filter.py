"""Removes tools that break the protocol from a server's list before the SDK reads it.

The SDK takes a list as a whole or not at all, so one bad schema would cost all tools of its server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import methods
from pydantic import JsonValue, ValidationError

from bot.tools.mcp.tool_list import RawTool, truncate

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream  # private, but only a type

DEFAULT_VERSION = "2025-11-25"
"""The protocol's version for a list before one is agreed on, as in the SDK."""
MAX_FAULT = 200
"""Characters of what is wrong with a tool."""
UNNAMED = "(a tool without a name)"


class ToolListFilter(ObjectReceiveStream[SessionMessage | Exception]):
    """Receives what a server sends; ``left_out`` are the tools removed from its lists."""

    def __init__(self, read: ReadStream[SessionMessage | Exception]) -> None:
        self._read = read
        self.version = DEFAULT_VERSION
        self.left_out: list[RawTool] = []

    async def receive(self) -> SessionMessage | Exception:
        item = await self._read.receive()
        match item:
            case SessionMessage(message=types.JSONRPCResponse(result={"tools": [*tools]} as result)):
                faults = [(tool, fault_of(tool, result, self.version)) for tool in tools]
                result["tools"] = [tool for tool, fault in faults if not fault]
                self.left_out += [RawTool(_name(tool), "", {}, fault) for tool, fault in faults if fault]
        return item

    async def aclose(self) -> None:
        await self._read.aclose()


def fault_of(tool: JsonValue, result: dict[str, JsonValue], version: str) -> str:
    """Return how a tool breaks the protocol, or ""; *result* is the list that it came in."""
    try:
        methods.validate_server_result("tools/list", version, {**result, "tools": [tool]})
        types.Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"] if step not in ("tools", 0))
        return truncate(f"it is not valid MCP ({place or 'it'}: {first['msg']})", MAX_FAULT, str)
    except (KeyError, ValueError):  # a version without a form for it: the SDK will say so
        pass
    return ""


def _name(tool: JsonValue) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) and name else UNNAMED
