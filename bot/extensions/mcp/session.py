"""One connection to a server through the SDK's client: entered, used and left by one and the same task.

Requests of the server (elicitation, sampling, roots) are refused: the SDK refuses what has no callback. Its check of
results by their schema is not used: it would run the server's regular expressions.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from bot.extensions.mcp.compatibility import CompatibleStream, sent_schema
from bot.extensions.mcp.connection import ConnectionLost, NotRun, StderrLog
from bot.extensions.mcp.http import FORGOTTEN, LOST, MAX_SEARCHED, NOT_RUN, Guard, http
from bot.extensions.mcp.plain_text import clean, truncate
from bot.extensions.mcp.settings import McpServer
from bot.extensions.mcp.stdio import stdio
from bot.extensions.mcp.tool_list import RawTool
from bot.ports.errors import ToolError, ToolInvalidInput, ToolMalformedOutput
from threads.store.checksummed_lines import scrub
from threads.wording import first_cause

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # private, but only a type

MAX_PAGES = 50
MAX_LISTED = 1000
"""Pages and tools of a list that are read."""
MAX_NAMED = 50
"""Prompts of a server that are listed."""
MAX_REFUSAL = 1000
"""Characters of a server's refusal that are kept."""
LISTEN_AGAIN_S = 60.0
"""Seconds until a stream of changes that has ended is opened again."""

T = TypeVar("T")

_Result: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_OF_THE_SESSION = frozenset({types.INVALID_REQUEST, types.PARSE_ERROR, *range(-32_099, -31_999)})
"""The codes of refusals that may be about the session; `PARSE_ERROR` is the SDK's where an answer is not JSON-RPC."""
_REASONS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((ToolMalformedOutput,), "what it answers is not MCP"),
    ((MCPError, ToolError), "it refused the connection"),
    ((httpx2.ConnectError, httpx2.TimeoutException), "it cannot be reached"),
    ((httpx2.HTTPError, httpx2.StreamError, OSError, anyio.BrokenResourceError), "the connection broke"),
    ((OAuthRegistrationError,), "it does not let the bot register itself; oauth.client_id names a client"),
    ((OAuthFlowError,), "the sign-in there failed"),
    ((ValueError, RuntimeError), "what it answers is not MCP"),
)


@dataclass(eq=False)
class McpSession:
    """An open connection. No text of the server is cut inside a secret that *mask* knows."""

    client: Client
    received: CompatibleStream
    changed: Changed
    origin: str
    mask: Callable[[str], str]

    async def list(self) -> list[RawTool]:
        """Return the first `MAX_LISTED` tools of the server, and one for each that has no name.

        Raises as `call`.
        """
        self.received.nameless = 0
        tools: list[RawTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._ask(
                self.client.session.list_tools(params=params), types.ListToolsResult(tools=[])
            )
            tools += [RawTool(t.name, t.description or "", sent_schema(t.input_schema)) for t in page.tools]
            if not (cursor := page.next_cursor) or len(tools) >= MAX_LISTED:
                break
        nameless = min(self.received.nameless, MAX_LISTED)
        return [*tools[:MAX_LISTED], *[RawTool("", "", None)] * nameless]

    async def next_change(self) -> None:
        """Return when the server has said, since the last time, that its tools are others."""
        await self.changed.wait()

    async def listen(self) -> None:
        """Hear of changes as long as the connection lasts, where the protocol wants them to be asked for."""
        tools = self.client.server_capabilities.tools
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (tools and tools.list_changed):
            return
        while True:
            try:
                async with self.client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self.changed.set()
            except (MCPError, SubscriptionLost) as lost:
                if isinstance(lost, MCPError) and lost.code == types.METHOD_NOT_FOUND:
                    return
            await anyio.sleep(LISTEN_AGAIN_S)
            self.changed.set()  # something may have been missed

    async def call(self, tool: str, arguments: dict[str, JsonValue]) -> types.CallToolResult:
        """Call a tool. Raises `ConnectionLost` when the connection is lost, `NotRun` if the call cannot have run.

        Else raises `ToolError`.
        """
        scrubbed = from_json(scrub(json.dumps(arguments, ensure_ascii=False)))
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=scrubbed))
        result = await self._ask(self.client.session.send_request(request, _Result))
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
                self.client.session.list_prompts(params=params), types.ListPromptsResult(prompts=[])
            )
            found += page.prompts
            if not (cursor := page.next_cursor) or len(found) >= MAX_NAMED:
                break
        return found[:MAX_NAMED]

    async def prompt(self, name: str, arguments: dict[str, str]) -> types.GetPromptResult:
        """Return the messages of a prompt. Raises as `call`."""
        return await self._ask(self.client.session.get_prompt(name, arguments))

    async def resource(self, uri: str) -> types.ReadResourceResult:
        """Return what is at *uri*. Raises as `call`."""
        return await self._ask(self.client.session.read_resource(uri))

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
        """Return our error for one of the SDK."""
        if error.code == NOT_RUN:
            return NotRun(error.message)
        if error.code in _OF_THE_SESSION and LOST.search(error.message[:MAX_SEARCHED]):
            return NotRun(FORGOTTEN)
        if error.code == types.CONNECTION_CLOSED:
            return ConnectionLost("it ended")
        kind = ToolInvalidInput if error.code == types.INVALID_PARAMS else ToolError
        return kind(f"The server refused the call: {server_message(error, self.mask)}", origin=self.origin)


class Changed:
    """Set when the server says that its tools have changed; waiting for it clears it."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event = anyio.Event()

    async def hear(self, message: IncomingMessage) -> None:
        """Take any message of the server; the `message_handler` of a client."""
        if isinstance(message, types.ToolListChangedNotification):
            self.set()


@asynccontextmanager
async def open_session(
    settings: McpServer,
    values: Mapping[str, str],
    stderr_log: StderrLog,
    origin: str,
    auth: httpx2.Auth | None = None,
    guard: Guard | None = None,
) -> AsyncIterator[McpSession]:
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
        received, changed = CompatibleStream(read), Changed()
        streams = nullcontext((received, write))
        async with Client(streams, client_info=info, message_handler=changed.hear, cache=None) as client:
            received.version = client.protocol_version
            yield McpSession(client, received, changed, origin, stderr_log.mask)


def failure_reason(error: BaseException) -> str:
    """Return in our own words why a connection failed or ended."""
    cause = first_cause(error)
    if isinstance(cause, ConnectionLost):
        return str(cause)
    return next((reason for kinds, reason in _REASONS if isinstance(cause, kinds)), "the connection failed")


def server_message(error: BaseException, mask: Callable[[str], str]) -> str:
    """Return the server's own words about an error, or ""."""
    first = first_cause(error)
    cause = first.__cause__ if isinstance(first, ToolError) else first
    message = cause.message if isinstance(cause, MCPError) else ""
    return truncate(clean(message[:20_000]), MAX_REFUSAL, mask)
