"""The commands `status` and `events`."""

from __future__ import annotations

import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.host.invocation import fail, folder_options, json_option, load, refuse
from bot.ports.config_error import ConfigInvalid

if TYPE_CHECKING:
    from bot.config.load import Loaded
    from bot.extensions.status.status_report import Shared


@click.command()
@folder_options
@json_option
@click.option("--quiet", is_flag=True, help="Print nothing; for the health check of a container.")
@click.option("--watch", is_flag=True, help="On a terminal: refresh every second until Ctrl-C.")
def status(settings_file: Path | None, data: Path | None, as_json: bool, quiet: bool, watch: bool) -> None:
    """Ask the running bot how it is. With PostgreSQL, list all workers too.

    Exit code: 0 ready, 3 running but not ready, 4 not running or not answering, 78 the settings cannot be used.
    """
    from bot.extensions.status.status_report import run_status

    loaded = load(settings_file, data, only_looks=True)
    try:
        shared = partial(_shared, loaded) if loaded.settings.store.kind != "files" and not quiet else None
        sys.exit(run_status(loaded, shared, json=as_json, quiet=quiet, watch=watch))
    except ConfigInvalid as error:
        refuse(str(error))
    except PermissionError as error:
        where = error.filename or loaded.settings.data
        fail(f"{where}: {error.strerror}; run this as the bot's user or as root.")


def _shared(loaded: Loaded) -> Shared:
    """Return the workers and tables of the store, over a connection of its own: it may be away in between."""
    from bot.host.store_reader import open_shared

    if (reader := open_shared(loaded.settings, loaded.environ)) is None:
        return (), ()
    with closing(reader):
        return reader.workers(), reader.tables()


@click.command()
@folder_options
@click.option("-f", "--follow", is_flag=True, help="Go on with new events, also over restarts, until Ctrl-C.")
@click.option("--since", type=click.IntRange(min=0), metavar="SEQ", help="Only events after this number.")
@click.option("--kind", multiple=True, help="Only this kind, such as retry; can be given more than once.")
@click.option("--thread", default="", help="Only this thread: its id, or the end of it.")
def events(
    settings_file: Path | None,
    data: Path | None,
    follow: bool,
    since: int | None,
    kind: tuple[str, ...],
    thread: str,
) -> None:
    """Print the events of the running bot as JSON lines, the newest few thousand or from then on.

    They have no text of a message. `threadfast schema --events` describes them. With several workers, each has its
    own: ask on the machine of each. After --since, a line of the kind gap says if events are missing.

    Exit code: 0 all printed, 1 the bot refuses or has cut off this reader, 4 not running or not answering.
    """
    from bot.extensions.status.event_reader import EventFilter, run_events

    folder = load(settings_file, data, only_looks=True).settings.data
    try:
        sys.exit(run_events(folder, EventFilter(kind, thread), since, follow=follow))
    except PermissionError as error:
        fail(f"{error.filename or folder}: {error.strerror}; run this as the bot's user or as root.")
