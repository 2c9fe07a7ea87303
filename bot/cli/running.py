"""Commands about the bot that runs, and about what it stands on."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bot.cli.given import load, settings_option


@click.command()
@settings_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list, an object for each thing.")
def doctor(settings_file: Path | None, as_json: bool) -> None:
    """Look over what the tools stand on: the sandbox, each MCP server."""
    from bot.doctor import run_doctor

    loaded = load(settings_file)
    sys.exit(run_doctor(loaded.settings, loaded.environ, json=as_json))
