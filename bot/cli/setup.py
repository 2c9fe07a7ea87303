"""Commands before the first start: settings and what platforms must know."""

from __future__ import annotations

from pathlib import Path

import click

from bot.cli.given import load, refuse, settings_option


@click.group()
def manifest() -> None:
    """Print what a chat platform has to know about the bot."""


@manifest.command("slack")
@settings_option
def manifest_slack(settings_file: Path | None) -> None:
    """Print the manifest of the Slack app; paste it when you create the app."""
    import json

    from bot.run import slack_manifest

    made, reasons = slack_manifest(load(settings_file, None).settings)
    click.echo(json.dumps(made, indent=2, ensure_ascii=False))
    click.echo("Why it asks for these scopes:", err=True)
    for reason in reasons:
        click.echo(f"  {reason}", err=True)


@click.command()
@settings_option
def check(settings_file: Path | None) -> None:
    """Check the settings and the secrets they refer to, without starting anything."""
    from bot.app import unpriced
    from bot.settings import check_used

    loaded = load(settings_file, None)
    faults = check_used(loaded.settings, loaded.environ, transports=True)
    if faults:
        refuse("\n".join(faults))
    for name in unpriced(loaded.settings):
        click.echo(f"settings: prices: what {name} costs is not known, so a hard budget refuses it", err=True)
    click.echo("The settings are fine.")


@click.command()
def schema() -> None:
    """Print the JSON Schema of settings.json."""
    import json

    from bot.settings import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
