"""`threadfast status`: the status of the bot on a data folder, once or every second.

In JSON, ``state`` is ready, not_ready, stopping, or one of `bot.host.status_client.NoStatus`; the rest is `Status`,
and ``workers`` if many share a database: null if it does not answer, and ``workers_unknown`` says why. The exit code
is about the bot on this machine, which is not ready without its database.
"""

from __future__ import annotations

import json as json_text
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.config.load import Loaded, secrets_of
from bot.extensions.status.status_lines import Line, lines, on_terminal, through_pipe, worker_lines
from bot.guards.redaction import Masker
from bot.host.status_client import ask, silence
from bot.host.terminal import console, is_terminal
from bot.ports.status import NoStatus, Status
from bot.reports.safe_text import flat
from threads.errors import NewerSchema

if TYPE_CHECKING:
    from bot.store.reader import WorkerRow

READY, NOT_READY, NOT_RUNNING = 0, 3, 4
EVERY_S = 1.0


def run_status(
    loaded: Loaded, workers: Callable[[], Sequence[WorkerRow]] | None, *, json: bool, quiet: bool, watch: bool
) -> int:
    """Print the status, with the *workers* if there are any to ask for, and return the exit code.

    *workers* may raise `ConnectionError` and `NewerSchema`. Raises `PermissionError`.
    """
    data, mask = loaded.settings.data, Masker(secrets_of(loaded.settings, loaded.environ))

    is_away = False

    def describe(found: Status | NoStatus) -> list[Line]:
        nonlocal is_away
        here = (
            [Line("threadfast", silence(found), "fail")]
            if isinstance(found, NoStatus)
            else lines(found, mask)
        )
        rows, why = _ask_workers(workers)
        is_away = rows is None
        unknown = [Line("workers", f"unknown: {why}", "fail")]
        return [*here, *(unknown if rows is None else worker_lines(rows) if workers else [])]

    found = ask(data)
    if watch and is_terminal() and not (quiet or json):
        found = _watch(data, found, describe)
    elif json:
        rows, why = _ask_workers(workers)
        is_away = rows is None
        known = {"workers": [*map(asdict, rows or ())]}
        more = {"workers": None, "workers_unknown": why} if is_away else known if workers else {}
        document = found.document() if isinstance(found, Status) else asdict(found)
        click.echo(json_text.dumps({"state": state_of(found), **document, **more}, indent=2))
    elif not quiet and is_terminal():
        console().print(on_terminal(describe(found)))
    elif not quiet:
        click.echo(through_pipe(describe(found)))
    return NOT_READY if is_away and code_of(found) == READY else code_of(found)


def _ask_workers(
    workers: Callable[[], Sequence[WorkerRow]] | None,
) -> tuple[Sequence[WorkerRow] | None, str]:
    """Return the workers, or None and why they are unknown."""
    try:
        return (workers() if workers else ()), ""
    except (ConnectionError, NewerSchema) as error:
        return None, flat(str(error))


def state_of(found: Status | NoStatus) -> str:
    match found:
        case NoStatus():
            return found.state
        case Status(stopping=True):
            return "stopping"
        case _:
            return "ready" if found.ready else "not_ready"


def code_of(found: Status | NoStatus) -> int:
    if isinstance(found, NoStatus):
        return NOT_RUNNING
    return READY if found.ready else NOT_READY


def _watch(
    data: Path,
    found: Status | NoStatus,
    describe: Callable[[Status | NoStatus], list[Line]],
) -> Status | NoStatus:
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(console=console(), auto_refresh=False) as live:
        while True:
            live.update(on_terminal(describe(found)), refresh=True)
            time.sleep(EVERY_S)
            found = ask(data)
    return found
