"""The commands `backup` and `restore`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from bot.host.invocation import fail, folder_options, json_option, load, print_json, refuse

if TYPE_CHECKING:
    from bot.extensions.backup.archive import Read
    from bot.extensions.backup.snapshot import Report

PATTERN = "threadfast-backup-*.tar.gz"
SHOWN = 10

PG_DUMP = (
    "The settings keep everything in PostgreSQL, which has its own backup: pg_dump makes one snapshot of all of it, "
    "while the workers run. For example: pg_dump --format=custom --file=threadfast.dump DSN"
)
PG_RESTORE = (
    "The settings keep everything in PostgreSQL: stop all workers, and bring a dump back with pg_restore. "
    "The next start notices it, and does not answer again what was answered after the dump."
)


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@folder_options
@click.option("--verify", is_flag=True, help="Make no backup; verify every checksum in FILE.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    help=f"Then keep only this many {PATTERN} beside it. Deletes none if this backup is incomplete.",
)
@json_option
def backup(
    file: Path | None,
    settings_file: Path | None,
    data: Path | None,
    verify: bool,
    keep: int | None,
    as_json: bool,
) -> None:
    """Copy the data folder into a tar.gz. The bot may keep running.

    FILE may be a folder; without one it is made here, named by the time. The copy holds conversations in plain text:
    only you can read it (mode 0600). It does not hold settings.json and credentials, which are not in the data
    folder, and what earlier restores have put aside (before-*).

    Exit code 1: something could not be read and is not in it; the rest is.
    """
    if verify:
        if file is None:
            raise click.UsageError("--verify needs FILE")
        _verify(file, as_json)
        return
    from dataclasses import asdict

    from bot.extensions.backup.snapshot import back_up, size_of
    from bot.host.terminal import progress_bar
    from threads.errors import BotError

    settings = load(settings_file, data, only_looks=True).settings
    if settings.store.kind != "files":
        refuse(PG_DUMP)
    folder = settings.data
    if file is None or file.is_dir():
        file = (file or Path()) / f"threadfast-backup-{_now():%Y%m%dT%H%M%SZ}.tar.gz"
    try:
        with progress_bar("Copying", size_of(folder), "bytes", quiet=as_json) as on_bytes:
            report = back_up(folder, file.absolute(), _now, on_bytes)
    except BotError as error:
        refuse(str(error))
    except OSError as error:
        _no_disk(file, error, "no backup was written")
    if keep is not None and not report.problems:  # an incomplete backup replaces no complete one
        for old in sorted(file.parent.glob(PATTERN))[:-keep]:
            old.unlink()
    if as_json:
        print_json({**asdict(report), "file": str(report.file), "at": report.at.isoformat()})
    else:
        _print_report(report)
    sys.exit(1 if report.problems else 0)


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@folder_options
@click.option(
    "--force", is_flag=True, help="Put the files in the data folder aside first; nothing is deleted."
)
@json_option
def restore(file: Path, settings_file: Path | None, data: Path | None, force: bool, as_json: bool) -> None:
    """Bring the data folder back from a backup. The bot must not be running.

    The data folder becomes what it was when FILE was made; the files in it must be put aside first (--force).
    settings.json and credentials/ are in no backup.

    At its next start it reads from the platforms what was said since, and answers what is not answered yet, as far
    back as recovery.max_age_s allows.
    """
    from bot.extensions.backup.restore import restore as bring_back
    from bot.host.terminal import progress_bar
    from threads.errors import BotError
    from threads.store.data_folder import FolderTaken

    settings = load(settings_file, data).settings
    if settings.store.kind != "files":
        refuse(PG_RESTORE)
    folder = settings.data
    try:
        with progress_bar("Restoring", None, "bytes", quiet=as_json) as on_bytes:
            found, aside = bring_back(file, folder, _now, force=force, on_bytes=on_bytes)
    except FolderTaken as error:
        refuse(
            f"{error}. Stop it first, restore, and start it again: what is in its memory would go over the backup"
        )
    except BotError as error:
        refuse(str(error))
    except OSError as error:
        _no_disk(folder, error, "the data folder is as it was, or the next start finishes it")
    if as_json:
        print_json({"data": str(folder), **_facts(found), "aside": str(aside) if aside else None})
        return
    click.echo(f"Restored {_summary(found)} to {folder}.")
    if aside:
        click.echo(f"The old files are in {aside}; delete them when you no longer need them.")
    click.echo("settings.json and credentials/ are in no backup: copy them too, if this is another machine.")
    click.echo("Then start the bot: it reads what was said since, and answers what has no answer yet.")


def _verify(file: Path, as_json: bool) -> None:
    from bot.extensions.backup.archive import verify
    from bot.reports.safe_text import flat
    from threads.errors import BotError

    try:
        found = verify(file)
    except BotError as error:
        refuse(str(error))
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    if as_json:
        print_json({"file": str(file), **_facts(found), "problems": found.contents.problems})
        return
    click.echo(f"{file} is whole: {_summary(found)}, made by Threadfast {found.about.threadfast}.")
    for line in found.contents.problems[:SHOWN]:
        click.echo(f"not in it, or not whole: {flat(line)}")


def _print_report(report: Report) -> None:
    from bot.reports.safe_text import flat

    click.echo(
        f"{report.file}: {report.files:,} files, {_size(report.bytes)}, {_size(report.stored_bytes)} compressed. "
        "Settings and credentials are not in it."
    )
    for lines, what in ((report.skipped, "left out"), (report.problems, "could not be read")):
        for line in lines[:SHOWN]:
            click.echo(f"{what}: {flat(line)}", err=True)
        if len(lines) > SHOWN:
            click.echo(f"{what}: {len(lines) - SHOWN:,} more; --json lists them all", err=True)


def _summary(found: Read) -> str:
    at = found.about.at.isoformat(timespec="seconds")
    return f"{len(found.contents.files):,} files ({_size(found.bytes)}) of {at}"


def _facts(found: Read) -> dict[str, object]:
    about = found.about.model_dump(include={"threadfast", "data_version"})
    at = found.about.at.isoformat()
    return {"files": len(found.contents.files), "bytes": found.bytes, "at": at, **about}


def _now() -> datetime:
    return datetime.now(UTC)


def _size(size: int) -> str:
    from rich.filesize import decimal

    return decimal(size)


def _no_disk(where: Path, error: OSError, so: str) -> NoReturn:
    import errno

    place = error.filename or where
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fail(f"{place}: the disk is full; {so}. Make room, or choose another place")
    fail(f"{place}: {error.strerror or error}; {so}")
