"""What the tools stand on: the walls around commands, the browser, each MCP server."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio

from bot.admin.doctor.examination import Findings, Look, Subject
from bot.config.settings import McpServer
from bot.tools.mcp.server import DEFAULT_TIMEOUTS, Server, Timeouts
from bot.tools.mcp.tool_list import Listing, clean, count_tools
from transports.shared.checks import Finding

SHOWN = 3
"""Of the tools that were left out, how many are named."""


async def look_at_sandbox(look: Look) -> Findings:
    from bot.tools.sandbox.selection import open_sandbox  # noqa: PLC0415 - for who asks

    mode = look.settings.tools.sandbox
    if "shell" not in look.settings.tools.enabled or mode == "off":
        yield Finding("sandbox", "ok", "shell commands are off in the settings")
        return
    with tempfile.TemporaryDirectory() as beside:
        sandbox = await open_sandbox(mode, Path(beside), offload=look.offload)
    if sandbox.layer == "off":
        yield Finding(
            "sandbox",
            "warn" if mode == "auto" else "fail",
            sandbox.why,
            "The model has no shell; everything else works.",
            "Fix this, or take shell out of tools.enabled.",
        )
    elif mode == "unsafe-host":
        yield Finding(
            "sandbox",
            "warn",
            sandbox.why,
            "Anything the model is talked into runs as this user.",
            'Set tools.sandbox to "auto".',
        )
    else:
        yield Finding("sandbox", "ok", sandbox.why)


async def look_at_browser(look: Look) -> Findings:
    if "browser" not in look.settings.tools.enabled:
        return
    from bot.tools.browser.detect import unavailable  # noqa: PLC0415 - for who has it

    why = await look.offload(unavailable)
    if not why:
        yield Finding("browser", "ok", "Chromium is installed")
        return
    yield Finding(
        "browser",
        "warn",
        why,
        "Pages are read without a browser, so pages built by scripts are empty.",
        "Fix this, or take browser out of tools.enabled.",
    )


def mcp_servers(look: Look, times: Timeouts = DEFAULT_TIMEOUTS) -> list[Subject]:
    """Return a subject for each MCP server: it is started or connected to, and ended again; nothing is kept."""

    def subject(name: str, server: McpServer) -> Subject:
        async def look_at_server(look: Look) -> Findings:
            tried = Server(
                name,
                server,
                look.environ,
                offload=look.offload,
                mask=look.mask,
                on_listed=_unkept,
                times=times,
            )
            yield await _listed(tried)

        return Subject(f"mcp_servers.{name}", look_at_server)

    return [subject(name, server) for name, server in sorted(look.settings.mcp_servers.items())]


async def _listed(server: Server) -> Finding:
    name = f"mcp_servers.{server.name}"
    started_at = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        server.request_connection()
        await server.attempted.wait()
        took_s = anyio.current_time() - started_at
        tasks.cancel_scope.cancel()
    if server.listing is None:
        words = f" It said: {server.last_output}" if server.last_output else ""
        return Finding(
            name,
            "fail",
            f"{server.reason}.{words}",
            "Its tools are missing. Everything else works.",
            "Try its command or address by hand.",
            (server.last_output,),
        )
    return _offer(name, server.listing, took_s)


def _offer(name: str, listing: Listing, took_s: float) -> Finding:
    found = f"{count_tools(len(listing.tools))}, in {took_s:.1f} s"
    if not listing.left_out:
        return Finding(name, "ok", found)
    shown = "; ".join(listing.left_out[:SHOWN])
    more = len(listing.left_out) - SHOWN
    return Finding(
        name,
        "warn",
        clean(f"{found}; left out: {shown}{f'; and {more} more' if more > 0 else ''}"),
        "The model cannot use these.",
        "Ask the author of the server.",
        tuple(listing.left_out[:SHOWN]),
    )


async def _unkept(_name: str, _listing: Listing) -> None:
    """Keep nothing: this is no start of the bot."""
