"""One connection to a server through the SDK's client: entered, used and left by one and the same task.

Requests of the server (elicitation, sampling, roots) are refused: the SDK refuses what has no callback. Its check of
results by their schema is not used: it would run the server's regular expressions.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

import anyio
import httpx2
import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp import Client, MCPError
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError
from mcp.shared.message import SessionMessage
from mcp_types import methods
from pydantic import JsonValue, TypeAdapter, ValidationError

from bot.config.settings import McpServer
from bot.ports.errors import ToolError, ToolInvalidInput, ToolMalformedOutput
from bot.tools.mcp.connection import ConnectionLost, StderrLog
from bot.tools.mcp.http import Guard, http
from bot.tools.mcp.stdio import stdio
from bot.tools.mcp.tool_list import RawTool, clean, truncate
from threads.wording import first_cause

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams  # private, but only types

MAX_PAGES = 50
MAX_LISTED = 1000
"""Pages and tools of a list that are read."""
MAX_NAMED = 50
"""Prompts of a server that are listed."""
MAX_REFUSAL = 1000
"""Characters of a server's refusal that are kept."""
MAX_FAULT = 200
"""Characters of what is wrong with a tool."""

T = TypeVar("T")

_Result: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_REASONS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((MCPError,), "it refused the connection"),
    ((httpx2.ConnectError, httpx2.TimeoutException), "it cannot be reached"),
    ((httpx2.HTTPError, httpx2.StreamError, OSError, anyio.BrokenResourceError), "the connection broke"),
    ((OAuthRegistrationError,), "it does not let the bot register itself; oauth.client_id names a client"),
    ((OAuthFlowError,), "the sign-in there failed"),
    ((ValueError, RuntimeError), "what it answers is not MCP"),
)


class ToolListFilter(ObjectReceiveStream[SessionMessage | Exception]):
    """Receives what a server sends, and removes tools that break the protocol from its lists.

    The SDK takes a list as a whole or not at all, so one bad schema would cost all tools of its server. ``left_out``
    are the removed tools. ``version`` is the protocol's, once it is agreed on.
    """

    def __init__(self, read: ReadStream[SessionMessage | Exception]) -> None:
        self._read = read
        self.version = ""
        self.left_out: list[RawTool] = []

    async def receive(self) -> SessionMessage | Exception:
        item = await self._read.receive()
        match item:
            case SessionMessage(message=types.JSONRPCResponse(result={"tools": [*tools]} as result)):
                faults = [(tool, _fault(tool, result, self.version)) for tool in tools]
                result["tools"] = [tool for tool, fault in faults if not fault]
                self.left_out += [RawTool(_name(tool), "", {}, fault) for tool, fault in faults if fault]
        return item

    async def aclose(self) -> None:
        await self._read.aclose()


class Session:
    """An open connection. No text of the server is cut inside a secret that *mask* knows."""

    def __init__(
        self, client: Client, tool_filter: ToolListFilter, origin: str, mask: Callable[[str], str]
    ) -> None:
        self._session, self._filter, self._origin, self._mask = client.session, tool_filter, origin, mask

    async def list(self) -> list[RawTool]:
        """Return the first `MAX_LISTED` tools of the server, and those that break the protocol with their fault.

        Raises `MCPError`, and pydantic's errors when the list itself is not valid.
        """
        self._filter.left_out.clear()
        tools: list[RawTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            tools += [RawTool(t.name, t.description or "", t.input_schema) for t in page.tools]
            cursor = page.next_cursor
            if not cursor or len(tools) >= MAX_LISTED:
                break
        return [*tools[:MAX_LISTED], *self._filter.left_out[:MAX_LISTED]]

    async def call(self, tool: str, arguments: dict[str, JsonValue]) -> types.CallToolResult:
        """Call a tool. Raises `ConnectionLost` when the connection is lost, else `ToolError`."""
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            result = await self._session.send_request(request, _Result)
        except MCPError as error:
            raise self._translate(error) from error
        except ValidationError as error:
            raise ToolMalformedOutput("The server's answer is not valid MCP.") from error
        if isinstance(result, types.InputRequiredResult):
            raise ToolError(
                "The server asked a question of its own before it would answer; that is always declined.",
                suggestion="Do without this tool here.",
            )
        return result

    async def prompts(self) -> builtins.list[types.Prompt]:
        """Return the first `MAX_NAMED` prompts of the server, none if it has no such thing. Raises as `call`."""
        found: builtins.list[types.Prompt] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._ask(
                self._session.list_prompts(params=params), types.ListPromptsResult(prompts=[])
            )
            found += page.prompts
            cursor = page.next_cursor
            if not cursor or len(found) >= MAX_NAMED:
                break
        return found[:MAX_NAMED]

    async def prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """Return the messages of a prompt. Raises as `call`."""
        return await self._ask(self._session.get_prompt(name, arguments))

    async def resource(self, uri: str) -> types.ReadResourceResult:
        """Return what is at *uri*. Raises as `call`."""
        return await self._ask(self._session.read_resource(uri))

    async def _ask(self, request: Awaitable[T], without: T | None = None) -> T:
        """Return the result, or *without* if the server has no such method."""
        try:
            return await request
        except MCPError as error:
            if without is not None and error.code == types.METHOD_NOT_FOUND:
                return without
            raise self._translate(error) from error
        except ValidationError as error:
            raise ToolMalformedOutput("The server's answer is not valid MCP.") from error

    def _translate(self, error: MCPError) -> Exception:
        """Return our error for one of the SDK, which reports the end of an HTTP session by these words only."""
        if error.code == types.CONNECTION_CLOSED:
            return ConnectionLost("it ended")
        if error.code == types.INVALID_REQUEST and error.message == "Session terminated":
            return ConnectionLost("it has forgotten the session")
        kind = ToolInvalidInput if error.code == types.INVALID_PARAMS else ToolError
        return kind(f"The server refused the call: {server_message(error, self._mask)}", origin=self._origin)


@asynccontextmanager
async def open_session(
    settings: McpServer,
    values: Mapping[str, str],
    stderr_log: StderrLog,
    origin: str,
    auth: httpx2.Auth | None = None,
    guard: Guard | None = None,
) -> AsyncIterator[Session]:
    """Connect, and yield the session; *values* are the server's headers or environment.

    Raises whatever the SDK does: see `failure_reason`.
    """
    wire: AbstractAsyncContextManager[TransportStreams]
    if settings.url:
        wire = http(settings.url, values, auth, guard)
    else:
        assert settings.command, "valid settings have one of the two"
        wire = stdio(settings.command, settings.args, values, stderr_log)
    info = types.Implementation(name="threadfast", version="1")
    async with wire as (read, write):
        tools = ToolListFilter(read)
        async with Client(nullcontext((tools, write)), client_info=info, cache=None) as client:
            tools.version = client.protocol_version
            yield Session(client, tools, origin, stderr_log.mask)


def failure_reason(error: BaseException) -> str:
    """Return in our own words why a connection failed or ended."""
    cause = first_cause(error)
    if isinstance(cause, ConnectionLost):
        return str(cause)
    return next((reason for kinds, reason in _REASONS if isinstance(cause, kinds)), "the connection failed")


def server_message(error: BaseException, mask: Callable[[str], str]) -> str:
    """Return the server's own words about an error, or ""."""
    cause = first_cause(error)
    message = cause.message if isinstance(cause, MCPError) else ""
    return truncate(clean(message[:20_000]), MAX_REFUSAL, mask)


def _fault(tool: JsonValue, result: dict[str, JsonValue], version: str) -> str:
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
    return name if isinstance(name, str) and name else "(a tool without a name)"
