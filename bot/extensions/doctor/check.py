"""`threadfast check`: the settings and what they refer to, without starting anything."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.host.invocation import json_option, print_json, refuse, settings_option
from bot.host.settings_check import examine
from bot.ports.config_error import EX_CONFIG

if TYPE_CHECKING:
    from bot.config.settings import Settings

NO_PLATFORM = "No chat platform is configured. `threadfast chat` works; `threadfast init slack` adds one."


@click.command()
@settings_option
@json_option
@click.option(
    "--for",
    "place",
    metavar="PLACE",
    default="",
    help="Print what holds there and why: slack:TEAM:CHANNEL, discord:GUILD:CHANNEL, or without the channel.",
)
@click.option("--person", metavar="ID", default="", help="With --for: what holds there for this person.")
def check(settings_file: Path | None, as_json: bool, place: str, person: str) -> None:
    """Check the settings, the secrets they refer to, and what extensions read. Nothing is started or contacted.

    It also shows what the tool profile and the policy mean together.
    """
    from bot.config.tool_profiles import describe
    from bot.config.transports import served
    from bot.host.extension import transport_kinds

    if person and not place:
        raise click.UsageError("--person needs --for")
    found = examine(settings_file)
    loaded = found.loaded
    if place and loaded and not found.faults:
        _print_place(loaded.settings, place, person, as_json=as_json)
        return
    if as_json:
        print_json(found.json)
        sys.exit(EX_CONFIG if found.faults else 0)
    for warning in found.warnings:
        click.echo(f"settings: {warning}", err=True)
    if loaded is None or found.faults:
        refuse("\n".join(found.faults))
    file = settings_file or Path("settings.json")
    where = f"{file} is valid." if file.exists() else f"There is no {file}: all settings have their defaults."
    kinds = transport_kinds(loaded.settings)
    serves = [kinds[given.kind].about(name, given) for name, given in served(loaded.settings).items()]
    click.echo(where)
    profile = loaded.settings.tools.profile
    click.echo(
        f"Tools ({f'profile {profile}' if profile else 'no profile'}): {describe(loaded.settings.tools)}."
    )
    click.echo(f"`threadfast run` serves {' and '.join(serves)}." if serves else NO_PLATFORM)


def _print_place(settings: Settings, place: str, person: str, *, as_json: bool) -> None:
    from bot.extensions.doctor.effective_settings import place_of, report, table

    if (where := place_of(place, person)) is None:
        raise click.UsageError(
            f"--for {place}: write slack:TEAM or slack:TEAM:CHANNEL, or discord:GUILD or discord:GUILD:CHANNEL."
        )
    found = report(settings, where)
    if as_json:
        print_json(asdict(found))
    else:
        click.echo(table(found))
