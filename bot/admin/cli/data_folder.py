"""What commands that only look share: a data folder that must be there, words for what cannot be read, and times."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.admin.cli.invocation import fail, load, refuse
from threads.errors import NewerSchema

if TYPE_CHECKING:
    from bot.config.load import Loaded

LOOK_AGAIN_S = 0.5

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO = re.compile(r"(\d{1,6})([mhdw])")


class Since(click.ParamType[str]):
    """A day, an instant, or how long ago; becomes UTC, ISO 8601."""

    name = "when"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ago := _AGO.fullmatch(value):
            then = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        else:
            try:
                then = datetime.fromisoformat(value)
            except ValueError:
                self.fail(
                    f"{value!r} is not a time: give a day (2026-11-22), an instant, or 30m, 12h, 7d, 2w.",
                    param,
                    ctx,
                )
        then = then.replace(tzinfo=UTC) if then.tzinfo is None else then.astimezone(UTC)
        return then.isoformat(timespec="milliseconds")


SINCE = Since()


@contextmanager
def open_for_reading(settings_file: Path | None, data: Path | None) -> Iterator[Loaded]:
    """Load the settings for a look at their data folder, and say plainly what keeps a command from it."""
    loaded = load(settings_file, data, only_looks=True)
    folder = loaded.settings.data
    if not folder.is_dir():
        fail(
            f"There is no data folder {folder} (yet): `threadfast chat` or `threadfast run` makes it; "
            "--data or --settings name another one."
        )
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="replace"
        )  # people write what a terminal of another encoding cannot show
    try:
        yield loaded
        sys.stdout.flush()
    except NewerSchema as error:
        refuse(str(error))
    except BrokenPipeError:
        raise  # whoever read our output has seen enough
    except PermissionError as error:
        fail(f"{error.filename or folder}: {error.strerror}; run this as the bot's user or as root.")
    except OSError as error:
        fail(f"{error.filename or folder}: {error.strerror or error}")


def look_again() -> None:
    """Wait for more, with all that was printed visible."""
    sys.stdout.flush()
    time.sleep(LOOK_AGAIN_S)


def report_damage(lines: int) -> None:
    """Say on stderr that lines could not be read."""
    if lines:
        what = "1 damaged line was" if lines == 1 else f"{lines:,} damaged lines were"
        click.echo(f"{what} left out.", err=True)
