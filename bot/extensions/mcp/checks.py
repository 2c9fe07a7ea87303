"""Checks each MCP server for `threadfast doctor`."""

from __future__ import annotations

from functools import partial

import anyio

from bot.extensions.mcp.plain_text import clean
from bot.extensions.mcp.server import Server
from bot.extensions.mcp.settings import MCP_SERVERS, McpServer
from bot.extensions.mcp.tool_list import Listing, count_tools
from bot.host.checks import Check, Context, Findings
from threads.background import background_tasks
from transports.shared.checks import Finding

MOST_NAMED = 3
"""Tools that are named of those left out."""


def mcp_checks(context: Context) -> list[Check]:
    """Return a check for each MCP server. It starts the server or connects to it, and then stops it."""

    async def check_server(name: str, settings: McpServer, context: Context) -> Findings:
        if settings.oauth:
            yield await _sign_in(name, settings, context)
            return
        server = Server(
            name, settings, context.environ, offload=context.offload, mask=context.mask, on_listed=_discard
        )
        yield await _list_tools(server)

    servers = sorted(MCP_SERVERS.of(context.settings).items())
    return [Check(f"mcp_servers.{name}", partial(check_server, name, settings)) for name, settings in servers]


async def _sign_in(name: str, settings: McpServer, context: Context) -> Finding:
    """Look for the authorization server of a server. Nobody signs in."""
    assert settings.oauth, "only such servers are looked at"
    assert settings.url, "valid settings with oauth have one"
    by = "/mcp connect" if settings.oauth.account == "person" else "threadfast mcp login"
    how = f"people sign in by `{by} {name}`"
    if context.offline:
        return Finding(f"mcp_servers.{name}", "ok", f"not asked (--offline); {how}")
    from bot.extensions.mcp.discovery import find_authorization_server  # noqa: PLC0415 - the SDK
    from bot.extensions.mcp.oauth import OriginGuard  # noqa: PLC0415

    guard = OriginGuard(settings.url, context.settings.tools.private_hosts)
    host, why = await find_authorization_server(settings.url, guard)
    if not why:
        return Finding(f"mcp_servers.{name}", "ok", f"{host} lets people sign in; {how}", names=(host,))
    meaning = "Nobody can sign in, and nobody's sign-in can be renewed. Everything else works."
    fix = (
        "Look at its url, and at the way from here to there: DNS, firewall, HTTPS_PROXY, tools.private_hosts."
    )
    return Finding(f"mcp_servers.{name}", "fail", f"{host}: {why}", meaning, fix, (host,))


async def _list_tools(server: Server) -> Finding:
    name = f"mcp_servers.{server.name}"
    started_at = anyio.current_time()
    async with background_tasks() as tasks:
        tasks.start_soon(server.run)
        server.request_connection()
        await server.attempted.wait()
        took_s = anyio.current_time() - started_at
    if server.listing is None:
        found = f"{server.reason}.{f' It said: {server.last_output}' if server.last_output else ''}"
        meaning, fix = "Its tools are missing. Everything else works.", "Try its command or address by hand."
        return Finding(name, "fail", found, meaning, fix, (server.last_output,))
    return _offer(name, server.listing, took_s)


def _offer(name: str, listing: Listing, took_s: float) -> Finding:
    found = f"{count_tools(len(listing.tools))}, in {took_s:.1f} s"
    if not (listing.left_out or listing.reduced):
        return Finding(name, "ok", found)
    names: list[str] = []
    for how, tools in (("left out", listing.left_out), ("offered with less", listing.reduced)):
        named, more = tools[:MOST_NAMED], len(tools) - MOST_NAMED
        names += named
        found += f"; {how}: {'; '.join(named)}{f'; and {more} more' if more > 0 else ''}" if named else ""
    meaning = (
        "The model cannot use what is left out, and does not know all arguments of what is offered with less."
    )
    return Finding(name, "warn", clean(found), meaning, "Ask the author of the server.", tuple(names))


async def _discard(_name: str, _listing: Listing) -> None:
    """Store nothing: the bot does not start."""
