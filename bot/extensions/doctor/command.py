"""The command `doctor`, beside `check` and `extensions`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bot.extensions.doctor.check import check
from bot.extensions.doctor.extension_list import extensions
from bot.host.invocation import find_settings, folder_options, json_option

__all__ = ["check", "doctor", "extensions"]

DATED = "<dated>"


@click.command()
@folder_options
@json_option
@click.option("--offline", is_flag=True, help="Check only this machine: no model and no platform.")
@click.option("--fix", is_flag=True, help="First fix what is safe to fix, and print each fix.")
@click.option(
    "--post-in",
    metavar="PLACE",
    default="",
    help="Id of a Slack or Discord channel: post a test message there and delete it.",
)
@click.option(
    "--bundle",
    is_flag=False,
    flag_value=DATED,
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="[FILE]",
    help="Write a report file without messages, names or secrets.",
)
def doctor(
    settings_file: Path | None,
    data: Path | None,
    as_json: bool,
    offline: bool,
    fix: bool,
    post_in: str,
    bundle: Path | None,
) -> None:
    """Check everything the bot needs. That is its settings, disk, models, tools and platforms.

    Each check says what it found, what it means, and what to do. Exit code: 0 nothing fails, 1 a check fails,
    78 the settings cannot be used.
    """
    import os
    from datetime import datetime

    from bot.extensions.doctor.run import DoctorOptions, run_doctor
    from threads.wording import first_cause

    if bundle and str(bundle) == DATED:
        bundle = Path(f"threadfast-doctor-{datetime.now():%Y%m%d-%H%M%S}.txt")  # noqa: DTZ005 - for people
    wanted = DoctorOptions(find_settings(settings_file), data, offline, post_in, fix, as_json, bundle)
    try:
        sys.exit(run_doctor(wanted, os.environ))
    except BaseExceptionGroup as group:
        if isinstance(cause := first_cause(group), BrokenPipeError):
            raise cause from None  # the reader of our output has closed the pipe
        raise
