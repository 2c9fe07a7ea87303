"""The commands that serve: `chat` and `ask` in this terminal, and `run` for the configured platforms."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from bot.host.invocation import folder_options, load, masker, refuse
from bot.host.terminal_repair import repair_terminal
from bot.ports.config_error import ConfigInvalid, StoreRefused
from threads.errors import Fenced, NewerSchema

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bot.config.load import Loaded
    from bot.config.settings import Settings


MOST_PIPED = 1 << 20
"""Bytes of a question that comes through a pipe."""

CHATS = "It is a chat or a question in another terminal, or it has just begun to start."
PAGE = "It serves the page: `threadfast web link` prints a link with which you talk to it there."
PLATFORMS = "It serves {}: talk to it there."
OTHERWISE = "Or stop it first, or choose another folder with --data. `threadfast status` shows it."


@click.command()
@folder_options
def chat(settings_file: Path | None, data: Path | None) -> None:
    """Talk to the bot here. Lines from a pipe are answered in order."""
    repair_terminal()
    from bot.wiring.chat import run_chat

    loaded = load(settings_file, data)
    serve_process(partial(run_chat, file=loaded.file), loaded)


@click.command()
@click.argument("text", nargs=-1)
@click.option("--schema", type=click.Path(path_type=Path), help="A file with the JSON Schema of the answer.")
@click.option("--model", default="", help="The model to ask, as provider/model.")
@click.option(
    "--file", "files", type=click.Path(path_type=Path), multiple=True, help="Send a file; repeat for more."
)
@click.option("--thread", default="", help="The conversation to continue; by default a new one.")
@folder_options
def ask(
    text: tuple[str, ...],
    schema: Path | None,
    model: str,
    files: tuple[Path, ...],
    thread: str,
    settings_file: Path | None,
    data: Path | None,
) -> None:
    """Ask once, and print the answer. Text from a pipe is added below TEXT.

    The exit code is 0 for an answer, 1 without one, and 4 if the answer does not follow the schema.
    """
    from bot.wiring.ask import AskRequest, run_ask

    piped = "" if sys.stdin is None or sys.stdin.isatty() else _piped()
    asked = "\n\n".join(filter(None, (" ".join(text).strip(), piped.strip())))
    if not asked:
        raise click.UsageError("Nothing was asked. Give a TEXT, or pipe one in.")
    question = AskRequest(asked, schema, model, files, thread)
    serve_process(partial(run_ask, question), load(settings_file, data))


def _piped() -> str:
    data = sys.stdin.buffer.read(MOST_PIPED + 1)
    if len(data) > MOST_PIPED:
        raise click.UsageError(
            f"More than {MOST_PIPED:,} bytes were piped in. Send them as a file, with --file."
        )
    return data.decode(errors="replace")


@click.command()
@folder_options
def run(settings_file: Path | None, data: Path | None) -> None:
    """Serve the chat platforms that the settings name. It runs until Ctrl-C or SIGTERM."""
    # Before the imports, which take a second: in a container this is process 1, which has no default for a signal.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    await_reload()
    from bot.wiring.run import run_transports

    loaded = load(settings_file, data)
    serve_process(partial(run_transports, file=loaded.file), loaded)


def await_reload() -> None:
    """Ignore SIGHUP until somebody listens, except in a terminal. It means a reload, and a start reads all anew."""
    if sys.stdin is None or not sys.stdin.isatty():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def serve_process(
    work: Callable[[Settings, Mapping[str, str]], Awaitable[int | None]], loaded: Loaded
) -> NoReturn:
    """Run *work* as what this process is for, and exit with what became of it."""
    import anyio

    from bot.guards.hardening import harden_process
    from threads.store.data_folder import FolderTaken, ForeignFolder
    from threads.wording import first_cause

    harden_process()
    try:
        sys.exit(anyio.run(work, loaded.settings, loaded.environ))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - the boundary of the process: it ends with the log, not the interpreter
        match first_cause(error):
            case FolderTaken() as cause if not isinstance(cause, ForeignFolder):
                refuse(f"{cause}. {_place_of(loaded.settings.data)} {OTHERWISE}")
            case ConfigInvalid() | ForeignFolder() | NewerSchema() as cause:
                refuse(masker(loaded)(str(cause)))
            case StoreRefused() as cause:
                refuse(
                    masker(loaded)(f"{cause}. Correct the address (`store.dsn`), or what its user may do.")
                )
            case Fenced() | ConnectionError() as cause:
                click.echo(masker(loaded)(f"{cause}; it has to start over"), err=True)
                sys.exit(os.EX_TEMPFAIL)
            case OSError() as cause:
                where = cause.filename or loaded.settings.data
                refuse(f"{where}: {cause.strerror}; fix that, or choose another data folder with --data")
            case _:
                _crashed(error, loaded)


def _place_of(data: Path) -> str:
    """Return where a person talks to the bot that serves this folder."""
    from bot.host.status_client import find_running_bot
    from bot.ports.status import NoStatus

    found = find_running_bot(data)
    names = [] if isinstance(found, NoStatus) else [transport.name for transport in found.transports]
    if "web" in names:
        return PAGE
    return PLATFORMS.format(" and ".join(names)) if names else CHATS


def _crashed(error: BaseException, loaded: Loaded) -> NoReturn:
    """Log the error and exit. The interpreter would print it without masking secrets."""
    import logging
    import traceback

    if logging.root.handlers:
        logging.getLogger(__name__).critical("crashed", exc_info=error)
    else:
        click.echo(masker(loaded)("".join(traceback.format_exception(error))), err=True)
    sys.exit(1)
