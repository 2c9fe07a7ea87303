"""`threadfast status`: the status of the bot on a data folder, once or every second.

In JSON, ``state`` is ready, not_ready, stopping, or one of `bot.host.status_client.NoStatus`; the rest is `Status`,
and ``workers`` and ``tables`` (bytes) if many share a database: ``workers`` is null if it does not answer, and
``workers_unknown`` says why. The exit code is about the bot on this machine, which is not ready without its database.
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
from bot.extensions.status.status_lines import Line, lines, on_terminal, shared_lines, through_pipe
from bot.guards.redaction import Masker
from bot.host.status_client import ask, silence
from bot.host.terminal import console, is_terminal
from bot.ports.status import NoStatus, Status
from bot.reports.safe_text import flat
from threads.errors import NewerSchema

if TYPE_CHECKING:
    from bot.store.reader import WorkerRow

Shared = tuple[Sequence["WorkerRow"], Sequence[tuple[str, int]]]
"""The workers of a database, and its tables with their bytes."""

READY, NOT_READY, NOT_RUNNING = 0, 3, 4
EVERY_S = 1.0


def run_status(
    loaded: Loaded, shared: Callable[[], Shared] | None, *, json: bool, quiet: bool, watch: bool
) -> int:
    """Print the status, with what is *shared* if there is a database to ask, and return the exit code.

    *shared* may raise `ConnectionError` and `NewerSchema`. Raises `PermissionError`.
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
        known, why = _ask(shared)
        is_away = known is None
        unknown = [Line("workers", f"unknown: {why}", "fail")]
        return [*here, *(unknown if known is None else shared_lines(*known) if shared else [])]

    found = ask(data)
    if watch and is_terminal() and not (quiet or json):
        found = _watch(data, found, describe)
    elif json:
        known, why = _ask(shared)
        is_away = known is None
        more: dict[str, object] = {"workers": None, "workers_unknown": why} if known is None else {}
        if known and shared:
            more = {"workers": [*map(asdict, known[0])], "tables": dict(known[1])}
        document = found.document() if isinstance(found, Status) else asdict(found)
        click.echo(json_text.dumps({"state": state_of(found), **document, **more}, indent=2))
    elif not quiet and is_terminal():
        console().print(on_terminal(describe(found)))
    elif not quiet:
        click.echo(through_pipe(describe(found)))
    return NOT_READY if is_away and code_of(found) == READY else code_of(found)


def _ask(shared: Callable[[], Shared] | None) -> tuple[Shared | None, str]:
    """Return what is shared, or None and why that is unknown."""
    try:
        return (shared() if shared else ((), ())), ""
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
    data: Path, found: Status | NoStatus, describe: Callable[[Status | NoStatus], list[Line]]
) -> Status | NoStatus:
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(console=console(), auto_refresh=False) as live:
        while True:
            live.update(on_terminal(describe(found)), refresh=True)
            time.sleep(EVERY_S)
            found = ask(data)
    return found
