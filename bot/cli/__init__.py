"""The command line. A command imports what it needs when it runs, so that the first prompt comes fast."""

from __future__ import annotations

import click

from bot.cli.looking import dead_letters, threads, usage, why
from bot.cli.running import doctor
from bot.cli.serving import chat, run
from bot.cli.setup import check, manifest, schema


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="threadfast")
def main() -> None:
    """Threadfast: a self-hosted LLM agent that lives in chat threads and survives anything."""


for command in (chat, run, check, doctor, threads, why, usage, dead_letters, manifest, schema):
    main.add_command(command)
