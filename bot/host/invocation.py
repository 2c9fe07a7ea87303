"""What commands share: settings, data folder, masking and exit codes."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from bot.ports.config_error import EX_CONFIG, ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from bot.config.load import Loaded
    from bot.config.settings import Settings
    from bot.guards.redaction import Masker
    from threads.store.json_file import States
    from transports.base.transport import Transport

settings_option = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    envvar="THREADFAST_SETTINGS",
    show_envvar=True,
    help="settings.json; by default the one here, then yours, then the installed service's.",
)
data_option = click.option(
    "--data", type=click.Path(path_type=Path), help="Data folder; overrides the settings."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def folder_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --settings and --data."""
    return settings_option(data_option(command))


def find_settings(settings_file: Path | None) -> Path | None:
    """Return the settings that a command uses, or None for the defaults.

    The first that exists counts: the file named by ``--settings`` or ``THREADFAST_SETTINGS``, settings.json here,
    the person's own in ``$XDG_CONFIG_HOME/threadfast`` (XDG Base Directory Specification), the service's.
    `deploy/install.sh` leaves a link to the service's settings in the environment that it makes.
    """
    if settings_file:
        return settings_file
    config = os.environ.get("XDG_CONFIG_HOME", "")
    if not Path(config).is_absolute():
        config = os.path.expanduser("~/.config")  # noqa: PTH111 - `Path` fails where there is no home
    for path in (Path("settings.json"), Path(config, "threadfast", "settings.json")):
        if path.exists():
            return path
    service = Path(sys.prefix, "settings.json")
    return service.resolve() if service.is_symlink() else None


def load(settings_file: Path | None, data: Path | None = None, *, only_looks: bool = False) -> Loaded:
    """Read the settings, and let --data override the folder.

    A command that *only_looks* needs no more than that folder: with --data it goes on whatever is wrong with them.
    """
    from bot.config.load import load as read

    try:
        loaded = read(find_settings(settings_file), environ=os.environ)
    except ConfigInvalid as error:
        if data is None or not only_looks:
            refuse(str(error))
        click.echo(f"settings: {error}", err=True)
        click.echo(
            "Continuing with --data and defaults. Only text that looks like a secret is masked.", err=True
        )
        loaded = read(None, environ=os.environ)
    if data is None:
        return loaded
    folder = data.absolute()
    return replace(
        loaded,
        settings=loaded.settings.model_copy(update={"data": folder}),
        file=loaded.file and replace(loaded.file, data=folder),
    )


def masker(loaded: Loaded) -> Masker:
    """Return a masker for the secrets of these settings, and for text that looks like a secret."""
    from bot.config.load import secrets_of
    from bot.guards.redaction import Masker

    return Masker(secrets_of(loaded.settings, loaded.environ))


def print_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def refuse(text: str) -> NoReturn:
    """Exit with a code that nothing restarts: a person has to act."""
    click.echo(text, err=True)
    sys.exit(EX_CONFIG)


def fail(text: str) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(1)


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of the program that commands of extensions use, and that are put together above them."""

    states_beside: Callable[[Settings, Mapping[str, str]], AbstractAsyncContextManager[States]]
    serve: Callable[[Settings, Transport], Awaitable[None]]


def states_beside(settings: Settings, environ: Mapping[str, str]) -> AbstractAsyncContextManager[States]:
    """Return the small values of the store, for a command beside a running bot; raises `ConfigInvalid` on entry."""
    program: Program = click.get_current_context().find_root().obj
    return program.states_beside(settings, environ)


async def serve(settings: Settings, transport: Transport) -> None:
    """Run a bot that serves this transport alone until it ends, without an environment, so without a secret."""
    program: Program = click.get_current_context().find_root().obj
    await program.serve(settings, transport)
