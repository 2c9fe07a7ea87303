"""The commands `retention`, `forget` and `export`."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bot.host.invocation import fail, folder_options, json_option, load, print_json, refuse

if TYPE_CHECKING:
    from bot.config.load import Loaded
    from bot.extensions.retention.due import Step
    from bot.extensions.retention.forgotten import Receipt
    from bot.extensions.retention.settings import Retention
    from bot.extensions.retention.whom import Whom

STAYS = (
    "What was posted in the chat, and in backups: delete those that were made before. What others quoted of it. "
    "Folders named before-restore-… in the data folder: delete them too."
)
AT_WORK = "{name} is at work on this store. Stop all workers first, or say /forget in the thread"


@click.command()
@folder_options
@click.option("--dry-run", is_flag=True, help="Only say what is due.")
@json_option
def retention(settings_file: Path | None, data: Path | None, dry_run: bool, as_json: bool) -> None:
    """Say what the settings (`retention`) let go now, by kind, number and size.

    The running bot forgets it by itself, in small steps, when nobody writes. This command changes nothing.
    """
    from collections import defaultdict

    from rich.filesize import decimal

    from bot.extensions.retention.settings import RETENTION

    loaded = load(settings_file, data, only_looks=True)
    settings = loaded.settings
    if not dry_run:
        refuse(
            "The running bot forgets what is due by itself. See what that is with: threadfast retention --dry-run"
        )
    if (rules := RETENTION.of(settings)) is None:
        refuse("Nothing is ever forgotten: settings.json has no `retention`. See docs/settings.md.")
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    try:
        for step in _due(loaded, rules):
            found[step.kind][0] += step.count
            found[step.kind][1] += step.bytes
    except OSError as error:
        fail(f"{error.filename or settings.data}: {error.strerror or error}")
    if as_json:
        print_json({kind: {"count": count, "bytes": size} for kind, (count, size) in found.items()})
        return
    for kind, (count, size) in found.items():
        click.echo(f"{kind}: {count:,}, {decimal(size)}")
    if not found:
        click.echo("Nothing is due.")


@click.command()
@folder_options
@click.option(
    "--person", default="", metavar="ID", help="All that a person wrote, or that was made for them."
)
@click.option("--thread", default="", metavar="ID", help="All of one thread.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@json_option
def forget(
    settings_file: Path | None, data: Path | None, person: str, thread: str, yes: bool, as_json: bool
) -> None:
    """Erase what is kept of a person or of a thread. The bot must not be running.

    In a thread, /forget does it for that thread while the bot runs. The receipt holds numbers and no content. After a
    restore of an older backup, the next start forgets them again.
    """
    import anyio

    from bot.extensions.retention.forget import StillOpen
    from bot.extensions.retention.whom import Whom
    from bot.store.data_version import prepare
    from threads.errors import BotError
    from threads.store.data_folder import FolderTaken, lock_data_folder

    if bool(person) == bool(thread):
        raise click.UsageError("name either --person ID or --thread ID")
    if thread and thread.count(":") < len(("transport", "workspace", "channel")):
        raise click.UsageError("--thread needs a whole id, as `threadfast threads list` shows it")
    loaded = load(settings_file, data)
    folder = loaded.settings.data
    whom = Whom(person=person, thread=thread)
    if not yes:
        click.confirm(f"Erase all that is kept of the {whom.name}? It cannot be taken back", abort=True)
    try:
        with lock_data_folder(folder):
            prepare(folder)
            receipt = anyio.run(_forget, loaded, whom)
    except FolderTaken as error:
        refuse(f"{error}. Stop it first, or say /forget in the thread")
    except StillOpen as error:
        refuse(f"Nothing was erased: {error}. Let the bot finish it, or cancel it, and try again")
    except BotError as error:
        refuse(str(error))
    except OSError as error:
        fail(
            f"{error.filename or folder}: {error.strerror or error}; run it again, it goes on where it stopped"
        )
    if as_json:
        print_json(
            {"forgotten": whom.name, "at": receipt.at.isoformat(), "took": receipt.took, "stays": STAYS}
        )
        return
    click.echo(f"Forgotten: {whom.name}, {receipt.at:%Y-%m-%d %H:%M} UTC")
    for what, count in receipt.took.items():
        click.echo(f"  {what}: {count:,}")
    click.echo(f"Stays: {STAYS}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@folder_options
@click.option("--person", required=True, metavar="ID", help="Whose messages and files.")
@json_option
def export(folder: Path, settings_file: Path | None, data: Path | None, person: str, as_json: bool) -> None:
    """Write what is kept of a person into the new FOLDER: their messages, the answers, and their files."""
    from bot.extensions.retention.export import export as write
    from bot.extensions.retention.whom import counted
    from bot.host.store_reader import open_reader

    loaded = load(settings_file, data, only_looks=True)
    if folder.exists():
        refuse(f"{folder} is there already; name a new folder")
    try:
        with closing(open_reader(loaded.settings, loaded.environ)) as reader:
            messages, files = write(reader, person, folder)
    except OSError as error:
        fail(f"{error.filename or folder}: {error.strerror or error}")
    if as_json:
        print_json({"person": person, "folder": str(folder), "messages": messages, "files": files})
    else:
        click.echo(f"{folder}: {counted(messages, files)} of {person}. Only you can read it.")


def _due(loaded: Loaded, rules: Retention) -> list[Step]:
    """Return what is due in whatever store the settings name. Raises OSError."""
    from bot.extensions.retention.due import shared_steps, steps
    from bot.host.store_reader import open_shared

    now, reader = datetime.now(UTC), open_shared(loaded.settings, loaded.environ)
    if reader is None:
        return [*steps(loaded.settings.data, rules, now)]
    with closing(reader):
        return [*shared_steps(reader, rules, now)]


async def _forget(loaded: Loaded, whom: Whom) -> Receipt:
    """Forget them in whatever store the settings name. Raises `BotError` and OSError."""
    import anyio.to_thread

    from bot.extensions.retention.forget import forget
    from bot.extensions.retention.forget_shared import forget_shared
    from bot.extensions.retention.forgotten import NAME, ForgottenFile, note, open_list
    from bot.host.extension import store_kind
    from threads.store.disk import PosixDisk

    folder, disk, now = loaded.settings.data, PosixDisk(), lambda: datetime.now(UTC)
    if (kind := store_kind(loaded.settings)) is None:
        return await forget(folder, whom, disk, now)
    with closing(kind.read(loaded.settings, loaded.environ)) as reader:
        for worker in reader.workers():
            if worker.alive:
                refuse(AT_WORK.format(name=worker.name))
        receipt = await anyio.to_thread.run_sync(forget_shared, reader, whom, now)
    receipts = {whom.name: receipt}
    async with kind.states(loaded.settings, loaded.environ) as states:
        await note(await states.open(NAME, ForgottenFile()), receipts)
    await note(await open_list(disk, folder, anyio.to_thread.run_sync), receipts)
    return receipt
