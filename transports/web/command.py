"""`threadfast web`: the page for whoever starts the program, and links to the page of a running bot."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from bot.host.invocation import folder_options, load, masker, refuse, states_beside
from bot.ports.config_error import ConfigInvalid

port_option = click.option("--port", type=click.IntRange(0, 65535), help="Port of the page; 0 takes any.")


@click.group(invoke_without_command=True)
@port_option
@click.option("--open/--no-open", "opens", default=None, help="Open the page, by default on a desktop.")
@folder_options
@click.pass_context
def web(
    ctx: click.Context, port: int | None, opens: bool | None, settings_file: Path | None, data: Path | None
) -> None:
    """Talk to the bot in the browser. It prints a link that works once."""
    from bot.cli.serve import await_reload, serve_process

    if not ctx.invoked_subcommand:
        await_reload()
    ctx.obj = {"port": port, "settings_file": settings_file, "data": data}
    if ctx.invoked_subcommand:
        return
    from transports.web.own_process import run_page

    loaded = load(settings_file, data)
    desktop = sys.stdout.isatty() and any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    shows = desktop if opens is None else opens
    serve_process(partial(run_page, port, partial(_tell, opens=shows), file=loaded.file), loaded)


def _tell(address: str, *, opens: bool) -> None:
    click.echo(f"Open {address}\nThe link works once, for 10 minutes. Ctrl-C stops the bot.")
    if opens:
        click.launch(address)


@web.command()
@click.option(
    "--person", default="you", show_default=True, help="Whose page it opens: an id, as in `access`."
)
@click.option("--name", default="", help="What to call this person.")
@port_option
@folder_options
@click.pass_obj
def link(before: dict[str, Any], /, person: str, name: str, **given: Any) -> None:
    """Print a new link to the page of the running bot. It works once, for 10 minutes."""
    import anyio

    from transports.web.page import make_link
    from transports.web.sessions import Person

    options = {option: before[option] if value is None else value for option, value in given.items()}
    loaded, port = load(options["settings_file"], options["data"]), options["port"]
    whom = Person(id=person, name=name)

    async def made() -> str:
        async with states_beside(loaded.settings, loaded.environ) as states:
            return await make_link(states, loaded.settings, whom, port)

    try:
        address = anyio.run(made)
    except (ConfigInvalid, OSError) as error:
        refuse(masker(loaded)(str(error)))
    click.echo(address)
