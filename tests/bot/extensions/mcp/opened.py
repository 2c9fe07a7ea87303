"""Servers to be opened in tests, and their tools called as the gate would."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from bot.extensions.mcp.server import Timeouts
from bot.extensions.mcp.servers import Servers, open_servers
from bot.extensions.mcp.settings import McpServer
from bot.ports.errors import ToolError
from bot.ports.tool import ToolOutput
from tests.tool_context import tool_context
from threads.store.disk import PosixDisk

HERE = Path(__file__).parent
QUICK = Timeouts(program=10, address=10, first_pause=0.05, longest_pause=0.2, relist=0.05)
offload_to_thread = partial(anyio.to_thread.run_sync, abandon_on_cancel=False)
NO_ARGUMENTS = {"type": "object", "properties": {}}


def workshop(**more: object) -> McpServer:
    """A server made with the SDK's own server side."""
    return McpServer(command=sys.executable, args=(str(HERE / "program.py"),), **more)


def plain(folder: Path, way: str = "", tools: object = ("hello",), **more: object) -> McpServer:
    """A server in bare JSON lines; *tools* are names, or the listing as it is sent."""
    listed = [{"name": t, "inputSchema": NO_ARGUMENTS} if isinstance(t, str) else t for t in tools]
    file = folder / f"tools-{way}.json"
    file.write_text(json.dumps(listed))
    counter = folder / f"starts-{way}"
    return McpServer(
        command=sys.executable,
        args=("-S", "-E", str(HERE / "plain.py"), way, str(file), str(counter)),
        **more,
    )


def starts(folder: Path, way: str = "") -> list[int]:
    """The processes that such a server was, in order."""
    file = folder / f"starts-{way}"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def opened(
    folder: Path,
    configured: Mapping[str, McpServer],
    *,
    environ: Mapping[str, str] = os.environ,
    times: Timeouts = QUICK,
    learn_s: float = 20,
    **more: object,
) -> AbstractAsyncContextManager[Servers]:
    options = {"mask": str, "save": no_room, "times": times, "learn_s": learn_s, **more}
    return open_servers(
        configured, environ, folder / "data", disk=PosixDisk(), offload=offload_to_thread, **options
    )


async def no_room(_workspace: Path, _name: str, _data: bytes) -> str:
    raise ToolError("There is no room for a picture.")


async def call(servers: Servers, name: str, within_s: float = 20, **arguments: object) -> ToolOutput:
    tool = next(tool for tool in servers.tools if tool.name == name)
    context = tool_context(deadline=anyio.current_time() + within_s)
    return await tool(tool.arguments.model_validate(arguments), context)
