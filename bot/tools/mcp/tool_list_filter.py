"""Removes tools that break the protocol from a server's list before the SDK reads it.

The SDK takes a list as a whole or not at all, so one bad schema would cost all tools of its server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Self

import mcp_types as types
from mcp.shared.message import SessionMessage
from mcp_types import methods
from pydantic import JsonValue, ValidationError

from bot.tools.mcp.tool_list import RawTool, truncate

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams

DEFAULT_VERSION = "2025-11-25"
"""The protocol's version for a list before one is agreed on, as in the SDK."""
MAX_FAULT = 200
"""Characters of what is wrong with a tool."""
UNNAMED = "(a tool without a name)"


class ToolListFilter:
    """Reads what a server sends; ``left_out`` are the tools removed from its lists."""

    def __init__(self, read: ReadStream[SessionMessage | Exception]) -> None:
        self._read = read
        self.version: str | None = None
        self.left_out: list[RawTool] = []

    async def receive(self) -> SessionMessage | Exception:
        return self._filter(await self._read.receive())

    async def __anext__(self) -> SessionMessage | Exception:
        return self._filter(await self._read.__anext__())

    def __aiter__(self) -> Self:
        return self

    async def aclose(self) -> None:
        await self._read.aclose()

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._read.__aexit__(None, None, None)

    def __getattr__(self, name: str) -> object:
        """Return what only some transports have, such as a message's context."""
        return getattr(self._read, name)

    def _filter(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        match item:
            case SessionMessage(message=types.JSONRPCResponse(result={"tools": [*tools]} as result)):
                faults = [(tool, fault_of(tool, result, self.version or DEFAULT_VERSION)) for tool in tools]
                result["tools"] = [tool for tool, fault in faults if not fault]
                self.left_out += [RawTool(_name(tool), "", {}, fault) for tool, fault in faults if fault]
        return item


@asynccontextmanager
async def filtered(
    wire: AbstractAsyncContextManager[TransportStreams], filters: list[ToolListFilter]
) -> AsyncIterator[TransportStreams]:
    """Yield the streams of a transport, with a filter in between that is added to *filters*."""
    async with wire as (read, write):
        filters.append(ToolListFilter(read))
        yield filters[-1], write


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
