"""`threadfast schema`: what settings.json, and what extensions read, may be."""

from __future__ import annotations

from importlib import import_module

import click

from bot.config.built_in_extensions import BUILT_IN
from bot.host.invocation import print_json

OF_EXTENSIONS = [
    click.Option([f"--{name}", "of"], flag_value=place, help=f"Of a {name} instead.")
    for extension in BUILT_IN.values()
    if extension.is_here
    for name, place in extension.schemas.items()
]
"""The flags of `threadfast schema` for what extensions read."""


@click.command(params=OF_EXTENSIONS)
@click.option(
    "--events",
    "of",
    flag_value="bot.observe.event_lines:event_schema",
    help="Of a line of `threadfast events` instead.",
)
def schema(of: str | None) -> None:
    """Print the JSON Schema of settings.json."""
    module, _, function = (of or "bot.config.load:json_schema").partition(":")
    print_json(getattr(import_module(module), function)())
