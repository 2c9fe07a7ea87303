"""`threadfast manifest`: what Slack must know about the bot."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bot.host.invocation import load, settings_option


@click.group()
def manifest() -> None:
    """Print what a chat platform must know about the bot."""


@manifest.command()
@click.option("--as", "name", default="slack", help="The name of the workspace in the settings.")
@settings_option
def slack(name: str, settings_file: Path | None) -> None:
    """Print the manifest of the Slack app. Paste it when you create the app."""
    from bot.config.transports import served
    from transports.slack.manifest import scopes
    from transports.slack.settings import features
    from transports.slack.setup import app_manifest, workspace

    settings = load(settings_file, None).settings
    if name != "slack" and name not in served(settings):
        raise click.BadParameter(
            f"transports.{name} is not in the settings; `threadfast init slack --as {name}` adds it"
        )
    given = workspace(settings, name)
    click.echo(json.dumps(app_manifest(settings, given), indent=2, ensure_ascii=False))
    click.echo("Why it asks for these scopes:", err=True)
    for scope in scopes(features(settings, given)):
        click.echo(f"  {scope.name}: {scope.reason}", err=True)
