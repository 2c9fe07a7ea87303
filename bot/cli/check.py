"""`threadfast check` of the core: whether the settings can be used. That of the extension doctor says more."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bot.host.invocation import json_option, print_json, settings_option
from bot.host.settings_check import examine
from bot.ports.config_error import EX_CONFIG


@click.command()
@settings_option
@json_option
def check(settings_file: Path | None, as_json: bool) -> None:
    """Check the settings and the secrets they refer to. Nothing is started or contacted."""
    found = examine(settings_file)
    if as_json:
        print_json(found.json)
    else:
        click.echo("\n".join(found.faults) or "The settings are valid.", err=bool(found.faults))
    sys.exit(EX_CONFIG if found.faults else 0)
