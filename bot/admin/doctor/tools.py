"""Checks the sandbox, the browser, the playbooks and each MCP server."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import anyio

from bot.admin.doctor.checks import Check, Context, Findings
from bot.config.scopes import enabled_anywhere
from bot.config.settings import McpServer
from bot.playbooks.folder import Library
from bot.tools.mcp.plain_text import clean
from bot.tools.mcp.server import Server
from bot.tools.mcp.tool_list import Listing, count_tools
from transports.shared.checks import Finding, State

MOST_NAMED = 3
"""Tools that are named of those left out."""


async def check_sandbox(context: Context) -> Findings:
    from bot.tools.sandbox.selection import open_sandbox  # noqa: PLC0415 - slow, and only with a shell

    mode = context.settings.tools.sandbox
    if "shell" not in enabled_anywhere(context.settings) or mode == "off":
        yield Finding("sandbox", "ok", "shell commands are off in the settings")
        return
    with tempfile.TemporaryDirectory() as folder:
        sandbox = await open_sandbox(mode, Path(folder), offload=context.offload)
    if sandbox.layer == "off":
        meaning = "The model has no shell; everything else works."
        state: State = "warn" if mode == "auto" else "fail"
        yield Finding("sandbox", state, sandbox.why, meaning, "Fix this, or take shell out of tools.enabled.")
    elif mode == "unsafe-host":
        meaning = "Anything the model is talked into runs as this user."
        yield Finding("sandbox", "warn", sandbox.why, meaning, 'Set tools.sandbox to "auto".')
    else:
        yield Finding("sandbox", "ok", sandbox.why)


async def check_browser(context: Context) -> Findings:
    if "browser" not in enabled_anywhere(context.settings):
        return
    from bot.tools.browser.launch import unavailable  # noqa: PLC0415 - slow, and only with a browser

    why = await context.offload(unavailable)
    if not why:
        yield Finding("browser", "ok", "Chromium is installed")
        return
    meaning = "Pages are read without a browser, so pages built by scripts are empty."
    yield Finding("browser", "warn", why, meaning, "Fix this, or take browser out of tools.enabled.")


async def check_playbooks(context: Context) -> Findings:
    entries = await context.offload(Library.of(context.settings).read_all)
    for entry in entries:
        if entry.faults:
            more = f"; and {len(entry.faults) - 1} more" if len(entry.faults) > 1 else ""
            found = clean(f"{entry.file_name}: {entry.faults[0]}{more}")
            fix = "Correct it. `threadfast playbooks check` lists all faults with their lines."
            names = (entry.file_name, entry.faults[0])
            yield Finding("playbooks", "fail", found, "Nobody can play it.", fix, names)
    if valid := sum(not entry.faults for entry in entries):
        yield Finding("playbooks", "ok", f"{valid} valid")


def mcp_checks(context: Context) -> list[Check]:
    """Return a check for each MCP server. It starts the server or connects to it, and then stops it."""

    async def check_server(name: str, settings: McpServer, context: Context) -> Findings:
        if settings.oauth:
            yield await _sign_in(name, settings, context)
            return
        yield await _list_tools(
            Server(
                name,
                settings,
                context.environ,
                offload=context.offload,
                mask=context.mask,
                on_listed=_discard,
            )
        )

    servers = sorted(context.settings.mcp_servers.items())
    return [Check(f"mcp_servers.{name}", partial(check_server, name, settings)) for name, settings in servers]


async def _sign_in(name: str, settings: McpServer, context: Context) -> Finding:
    """Look for the authorization server of a server. Nobody signs in."""
    assert settings.oauth, "only such servers are looked at"
    assert settings.url, "valid settings with oauth have one"
    by = "/mcp connect" if settings.oauth.account == "person" else "threadfast mcp login"
    how = f"people sign in by `{by} {name}`"
    if context.offline:
        return Finding(f"mcp_servers.{name}", "ok", f"not asked (--offline); {how}")
    from bot.tools.mcp.discovery import find_authorization_server  # noqa: PLC0415 - the SDK
    from bot.tools.mcp.oauth import OriginGuard  # noqa: PLC0415

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
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        server.request_connection()
        await server.attempted.wait()
        took_s = anyio.current_time() - started_at
        tasks.cancel_scope.cancel()
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
    fix = "Ask the author of the server."
    return Finding(name, "warn", clean(found), meaning, fix, tuple(names))


async def _discard(_name: str, _listing: Listing) -> None:
    """Store nothing: the bot does not start."""
