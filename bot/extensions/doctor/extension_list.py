"""`threadfast extensions`: what is loaded, from where, and what it brings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.config.built_in_extensions import BUILT_IN
from bot.host.invocation import json_option, load, print_json, settings_option

if TYPE_CHECKING:
    from bot.host.extension import Extension


@click.group()
def extensions() -> None:
    """Show the extensions: what the program can do beside its core."""


@extensions.command("list")
@settings_option
@json_option
def list_extensions(settings_file: Path | None, as_json: bool) -> None:
    """List the extensions: where each comes from and what it brings; and those that could not be loaded."""
    from bot.config.extensions import installed_for
    from bot.host.extension import extensions_of

    settings = load(settings_file).settings
    here = installed_for(settings)
    found = [
        {"name": one.name, "from": here.sources[one.name], "about": one.about, "brings": _brings(one)}
        for one in extensions_of(settings)
    ]
    if as_json:
        print_json({"extensions": found, "failed": dict(here.failed)})
        return
    for one in found:
        click.echo(f"{one['name']}  ({one['from']})\n  {one['about']}\n  brings {one['brings']}")
    for name, why in here.failed.items():
        click.echo(f"{name}: cannot be loaded: {why}", err=True)


def _commands(extension: Extension) -> list[str]:
    row = BUILT_IN.get(extension.name)
    return [*row.commands] if row else [str(command.name) for command in extension.commands]


def _brings(extension: Extension) -> str:
    parts = (
        ("transports", [*extension.transports]),
        ("models of", [*extension.models]),
        ("stores", [*extension.stores]),
        ("settings", [part.path for part in extension.settings]),
        ("in threads", [f"/{command.name}" for command in extension.thread_commands]),
        ("commands", [f"threadfast {name}" for name in _commands(extension)]),
    )
    told = [f"{what} {', '.join(names)}" for what, names in parts if names]
    told += ["work beside the bot"] if extension.open else []
    told += ["a sink of events"] if extension.observers else []
    told += ["what reads files"] if extension.documents else []
    return "; ".join(told) or "nothing"
