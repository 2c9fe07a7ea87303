"""What read-only commands share: the data folder, its errors, and times as people type them."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.host.invocation import fail, folder_options, load, masker, refuse
from bot.ports.config_error import ConfigInvalid
from threads.errors import NewerSchema

if TYPE_CHECKING:
    from bot.config.load import Loaded
    from bot.guards.redaction import Masker
    from bot.reports.line_reader import Damage
    from bot.store.reader import Reader, SharedReader

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


@dataclass(frozen=True, slots=True)
class DataFolder:
    """What a command reads. It counts damaged lines in ``damage``, and masks what it prints."""

    reader: Reader
    loaded: Loaded
    mask: Masker
    damage: Damage

    def print_json(self, value: object, indent: int | None = 2) -> None:
        """Print a JSON value with every text in it masked."""
        from bot.extensions.reports.transcript_formats import mask_strings

        click.echo(json.dumps(mask_strings(value, self.mask), indent=indent))


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --settings, --data and, as its first argument, the data folder they name."""

    @folder_options
    @wraps(command)
    def read(settings_file: Path | None, data: Path | None, **options: object) -> None:
        with _open(settings_file, data) as folder:
            command(folder, **options)
            _report_damage(folder.damage.lines)

    return read


@contextmanager
def _open(settings_file: Path | None, data: Path | None) -> Iterator[DataFolder]:
    """Open the data folder, or end the command with the reason why it cannot be read."""
    from bot.host.store_reader import open_reader
    from bot.reports.line_reader import Damage

    loaded = load(settings_file, data, only_looks=True)
    folder, is_files = loaded.settings.data, loaded.settings.store.kind == "files"
    if is_files and not folder.is_dir():
        fail(
            f"There is no data folder {folder} (yet): `threadfast chat` or `threadfast run` creates it; "
            "--data or --settings name another one."
        )
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal of another encoding cannot show all that people write.
        sys.stdout.reconfigure(errors="replace")
    try:
        with closing(open_reader(loaded.settings, loaded.environ)) as reader:
            yield DataFolder(reader, loaded, masker(loaded), Damage())
        sys.stdout.flush()
    except (NewerSchema, ConfigInvalid) as error:
        refuse(str(error))
    except BrokenPipeError:
        raise  # the reader of our output has closed the pipe
    except OSError as error:
        more = "; run this as the bot's user or as root." if isinstance(error, PermissionError) else ""
        where = f"{error.filename or folder}: " if is_files else ""
        fail(f"{where}{error.strerror or error}{more}")


def shared_store(loaded: Loaded) -> SharedReader | None:
    """Return what reads the store of many workers, None for files. Raises `ConfigInvalid` and OSError."""
    from bot.host.store_reader import open_shared

    if reader := open_shared(loaded.settings, loaded.environ):
        click.get_current_context().call_on_close(reader.close)
    return reader


def look_again() -> None:
    """Wait for more, with all that was printed visible."""
    sys.stdout.flush()
    time.sleep(LOOK_AGAIN_S)


def _report_damage(lines: int) -> None:
    """Say on stderr that lines could not be read."""
    if lines:
        what = "1 damaged line was" if lines == 1 else f"{lines:,} damaged lines were"
        click.echo(f"{what} left out.", err=True)
