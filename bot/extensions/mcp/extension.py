"""MCP servers: their tools for the model, `/mcp` in threads, `threadfast mcp`, and a check of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from bot.extensions.mcp.settings import MCP_SERVERS
from bot.host.extension import Extension, Host, Running, ThreadCommand

if TYPE_CHECKING:
    from bot.host.checks import Check, Context

COMMAND = ThreadCommand(
    "mcp",
    "/mcp [connect NAME | disconnect NAME | NAME:PROMPT …]",
    "list MCP servers and their prompts, sign in or out there as yourself, or send a prompt",
    off="No MCP server is configured here: `mcp_servers` in my settings is empty.",
    is_turn=lambda words: ":" in words.partition(" ")[0],
)


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if not (configured := MCP_SERVERS.of(host.settings)):
        yield None
        return
    from bot.extensions.mcp.commands import McpCommands  # noqa: PLC0415 - only where there are any
    from bot.extensions.mcp.references import References  # noqa: PLC0415
    from bot.extensions.mcp.servers import open_servers  # noqa: PLC0415

    save = partial(host.writer.save_output, outside=True)
    async with open_servers(
        configured,
        host.environ,
        host.settings.data,
        disk=host.disk,
        offload=host.offload,
        mask=host.mask,
        save=save,
        states=host.states,
        learn=host.learn,
        private_hosts=host.settings.tools.private_hosts,
    ) as servers:
        references = References(servers, host.documents, save, host.workspace)
        commands = McpCommands(configured, servers, references, host.post)
        servers.on_tools, servers.on_arrival = host.offer, commands.tell_arrival
        yield Running(
            tools={
                name: [tool for tool in servers.tools if tool.server.name == name] for name in servers.by_name
            },
            obey={"mcp": commands.command},
            troubles=servers.trouble,
            prepare=commands.prepare,
            extend=commands.extend,
            receiving=commands.hiding_addresses,
            sign_in=commands.sign_in,
        )


def _checks(context: Context) -> Sequence[Check]:
    if not MCP_SERVERS.of(context.settings):
        return []
    from bot.extensions.mcp.checks import mcp_checks  # noqa: PLC0415 - slow

    return mcp_checks(context)


extension = Extension(
    "mcp",
    "gives the model the tools, prompts and resources of MCP servers",
    page="docs/operations.md",
    settings=(MCP_SERVERS,),
    thread_commands=(COMMAND,),
    open=_open,
    checks=_checks,
    groups=lambda settings: [*MCP_SERVERS.of(settings)],
)
