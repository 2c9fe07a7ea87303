"""The commands for MCP servers at which somebody signs in."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.host.invocation import fail, folder_options, load, masker, refuse, states_beside
from bot.ports.config_error import ConfigInvalid
from threads.background import background_tasks
from threads.errors import NewerSchema, StoreUnavailable

if TYPE_CHECKING:
    from bot.config.load import Loaded
    from bot.extensions.mcp.sign_in import SignIns
    from bot.extensions.mcp.tool_list import Listing

PERSONAL = "{0}: people sign in by themselves, with `/mcp connect {0}` in a direct message."


@click.group()
def mcp() -> None:
    """Sign the bot in at MCP servers, and out. Works beside a running bot."""


@mcp.command("list")
@folder_options
def list_servers(settings_file: Path | None, data: Path | None) -> None:
    """List the MCP servers in the settings: whether the bot is signed in, and which tools it lacks."""
    from bot.extensions.mcp.credentials import BOT
    from bot.extensions.mcp.servers import stored_listings
    from bot.extensions.mcp.settings import MCP_SERVERS

    loaded = load(settings_file, data)
    servers = MCP_SERVERS.of(loaded.settings)
    listings = stored_listings(loaded.settings)

    async def lines(sign_ins: SignIns) -> str:
        if not servers:
            click.echo("There are none: name one under `mcp_servers` in the settings.")
        for name, server in sorted(servers.items()):
            if server.oauth is None:
                click.echo(f"{name}: no sign-in")
            elif server.oauth.account == "person":
                click.echo(PERSONAL.format(name))
            else:
                known = await sign_ins.account(name, BOT).read()
                click.echo(f"{name}: {'signed in' if known.tokens else f'run `threadfast mcp login {name}`'}")
            _echo_tools(listings.get(name))
        return ""

    _run(loaded, lines)


@mcp.command()
@click.argument("name")
@folder_options
def login(name: str, settings_file: Path | None, data: Path | None) -> None:
    """Sign the bot in at the MCP server NAME.

    Opens a browser if there is one. Without, open the link anywhere and paste the address that you are sent to.
    """
    from bot.extensions.mcp.credentials import BOT
    from bot.extensions.mcp.sign_in import SignInFailed

    loaded = load(settings_file, data)
    _check(loaded, name)

    async def sign_in(sign_ins: SignIns) -> str:

        place = "console:"
        try:
            link = await sign_ins.begin(name, BOT, place)
        except SignInFailed as failed:
            return f"{name}: {failed}"
        click.echo(f"Open this link and sign in:\n\n{link}\n")
        click.echo(
            "If the browser then shows an error, paste the whole address that it shows here, and press Enter."
        )
        click.launch(link)
        async with background_tasks() as tasks:
            tasks.start_soon(_take_pasted, lambda address: sign_ins.account(name, BOT).take(address, place))
            why = await sign_ins.ended(name, BOT)
        if not why:
            click.echo(f"Signed in at {name}.")
        return f"{name}: {why}" if why else ""

    _run(loaded, sign_in)


@mcp.command()
@click.argument("name")
@click.option("--person", default="", help="Sign a person out, as TRANSPORT:ID, such as slack:U123.")
@folder_options
def logout(name: str, person: str, settings_file: Path | None, data: Path | None) -> None:
    """Forget the bot's sign-in at the MCP server NAME, or that of one person.

    A running bot notices at its next call.
    """
    loaded = load(settings_file, data)
    _check(loaded, name, person)

    async def sign_out(sign_ins: SignIns) -> str:
        had = await sign_ins.sign_out(name, person)
        click.echo(f"Signed out at {name}." if had else f"Nobody was signed in at {name}.")
        return ""

    _run(loaded, sign_out)


def _echo_tools(listing: Listing | None) -> None:
    """Print how many tools of a server the bot has, and each that it lacks or offers with less."""
    from bot.extensions.mcp.tool_list import count_tools

    click.echo(f"  {count_tools(len(listing.tools))}" if listing else "  its tools are not known yet")
    for what, tools in (
        (("left out", listing.left_out), ("offered with less", listing.reduced)) if listing else ()
    ):
        for tool in tools:
            click.echo(f"  {what}: {tool}")


def _check(loaded: Loaded, name: str, person: str = "") -> None:
    """End the command if it makes no sense for this server."""
    from bot.extensions.mcp.settings import MCP_SERVERS

    servers = MCP_SERVERS.of(loaded.settings)
    if (server := servers.get(name)) is None:
        known = ", ".join(sorted(servers)) or "none"
        refuse(f"mcp_servers: no server is called {name!r}; there is {known}.")
    if server.oauth is None:
        refuse(f"mcp_servers.{name}: has no oauth in the settings, so nobody signs in there.")
    if server.oauth.account == "person" and not person:
        refuse(PERSONAL.format(name))


async def _take_pasted(take: Callable[[str], Awaitable[bool]]) -> None:
    """Take the address that somebody pastes. Without a terminal or a pipe there is nothing to read."""
    import anyio

    rest = b""
    while True:
        try:
            await anyio.wait_readable(sys.stdin)
            data = os.read(sys.stdin.fileno(), 65_536)
        except (OSError, ValueError):
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in filter(None, (line.decode("utf-8", "replace").strip() for line in lines)):
            if not await take(line):
                click.echo(
                    "That is not an address of this sign-in. Paste all of it, from http:// on.", err=True
                )
        if not data:
            return


def _run(loaded: Loaded, work: Callable[[SignIns], Awaitable[str]]) -> None:
    """Run *work*, which returns why it has failed, or a blank, with the sign-ins of the settings."""
    import logging

    import anyio

    from bot.extensions.mcp.servers import open_sign_ins
    from threads.store.data_folder import ForeignFolder, make_data_folder
    from threads.wording import first_cause

    logging.getLogger("bot").setLevel(logging.CRITICAL)  # what matters is printed
    settings = loaded.settings

    async def run() -> str:
        make_data_folder(settings.data)
        async with (
            states_beside(settings, loaded.environ) as states,
            open_sign_ins(settings, loaded.environ, states) as sign_ins,
        ):
            return await work(sign_ins)

    try:
        fault = anyio.run(run)
    except Exception as error:
        cause = first_cause(error)
        if isinstance(cause, BrokenPipeError):  # the reader of our output has closed the pipe
            raise cause from None
        if isinstance(cause, ConfigInvalid | NewerSchema | ForeignFolder):
            refuse(str(cause))
        if not isinstance(cause, StoreUnavailable | OSError):
            raise
        fault = str(cause)
    if fault:
        fail(masker(loaded)(fault))
