"""The command `migrate`."""

from __future__ import annotations

from pathlib import Path

import click

from bot.host.invocation import data_option, fail, load, refuse, settings_option


@click.command()
@click.option("--to", required=True, help="env:NAME or file:PATH of a PostgreSQL address; or a new folder.")
@settings_option
@data_option
def migrate(to: str, settings_file: Path | None, data: Path | None) -> None:
    """Move everything from files to PostgreSQL, or back. Nothing may be running.

    Everything is moved or nothing. Afterwards the old place refuses to start: change `store` in the settings. The
    identity and skills stay in the data folder.
    """
    from bot.extensions.postgres.extension import NO_DRIVER

    try:
        from bot.extensions.postgres.move_store import to_folder, to_postgres
    except ModuleNotFoundError:
        refuse(NO_DRIVER)
    from bot.config.load import resolve_secret
    from bot.host.terminal import progress_bar
    from threads.errors import BotError

    loaded = load(settings_file, data)
    store, is_address = loaded.settings.store, to.startswith(("env:", "file:"))
    if is_address == (store.kind == "postgres"):
        refuse(
            "The settings keep everything in PostgreSQL: --to names a new folder."
            if is_address
            else 'The settings keep everything in files: --to names a database, as "env:NAME" or "file:PATH".'
        )
    try:
        with progress_bar("Moving", None, "lines") as counted:
            if is_address:
                found = to_postgres(loaded.settings.data, resolve_secret(to, loaded.environ), counted)
            else:
                found = to_folder(resolve_secret(store.dsn, loaded.environ), Path(to).absolute(), counted)
    except BotError as error:
        refuse(str(error))
    except OSError as error:
        fail(f"{error.strerror or error}; nothing was moved")
    click.echo(f"Moved: {', '.join(f'{count:,} {what}' for what, count in found.items() if count)}.")
    named = (
        f'"store": {{"kind": "postgres", "dsn": "{to}"}}'
        if is_address
        else f'"data": "{to}", without `store`'
    )
    click.echo(f"Now change settings.json: {named}. The old place refuses to start.")
