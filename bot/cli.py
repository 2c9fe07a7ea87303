"""The command line. A command imports what it needs when it runs, so that the first prompt comes fast."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from bot.errors import ConfigInvalid
from threads.errors import NewerSchema
from threads.wording import first_cause
from threads.workspace import FolderTaken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bot.guards.secrets import Masker
    from bot.settings import Loaded
    from bot.settings_model import Settings

EX_CONFIG = 78
"""The exit code that tells systemd not to restart: a person has to act (sysexits.h)."""

_settings_option = click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    help="settings.json; ./settings.json if there is one.",
)
_data_option = click.option(
    "--data", type=click.Path(path_type=Path), help="Data folder; overrides the settings."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="threadfast")
def main() -> None:
    """Threadfast: a self-hosted LLM agent that lives in chat threads and survives anything."""


@main.command()
@_settings_option
@_data_option
def chat(settings_file: Path | None, data: Path | None) -> None:
    """Talk to the bot here; piped lines are answered one after the other."""
    from bot.chat import run_chat

    _serve(run_chat, _load(settings_file, data))


@main.command()
@_settings_option
@_data_option
def run(settings_file: Path | None, data: Path | None) -> None:
    """Serve the transports that the settings name, until the process is ended."""
    from bot.run import run_transports

    _serve(run_transports, _load(settings_file, data))


@main.group()
def manifest() -> None:
    """Print what a chat platform has to know about the bot."""


@manifest.command("slack")
@_settings_option
def manifest_slack(settings_file: Path | None) -> None:
    """Print the manifest of the Slack app; paste it when you create the app."""
    import json

    from bot.run import slack_manifest

    made, reasons = slack_manifest(_load(settings_file, None).settings)
    click.echo(json.dumps(made, indent=2, ensure_ascii=False))
    click.echo("Why it asks for these scopes:", err=True)
    for reason in reasons:
        click.echo(f"  {reason}", err=True)


def _serve(work: Callable[[Settings, Mapping[str, str]], Awaitable[int | None]], loaded: Loaded) -> NoReturn:
    import anyio

    from bot.guards.process import seal

    seal()
    try:
        sys.exit(anyio.run(work, loaded.settings, os.environ))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - the boundary of the process: it ends with the log, not the interpreter
        match first_cause(error):
            case ConfigInvalid() | FolderTaken() | NewerSchema() as cause:
                _refuse(str(cause))
            case OSError() as cause:
                where = cause.filename or loaded.settings.data
                _refuse(f"{where}: {cause.strerror}; mend that, or choose another data folder with --data")
            case _:
                _crashed(error, loaded.settings)


def _crashed(error: BaseException, settings: Settings) -> NoReturn:
    """End with what went wrong in the log: the interpreter would print it with whatever secret is in it."""
    import logging
    import traceback

    if logging.root.handlers:
        logging.getLogger(__name__).critical("crashed", exc_info=error)
    else:
        click.echo(_masker(settings)("".join(traceback.format_exception(error))), err=True)
    sys.exit(1)


def _masker(settings: Settings) -> Masker:
    """Return what hides the secrets of these settings, and what looks like one, from a screen."""
    from bot.guards.secrets import Masker
    from bot.settings import secrets_of

    return Masker(secrets_of(settings, os.environ))


@main.command()
@_settings_option
def check(settings_file: Path | None) -> None:
    """Check the settings and the secrets they refer to, without starting anything."""
    from bot.app import unpriced
    from bot.settings import check_used

    loaded = _load(settings_file, None)
    faults = check_used(loaded.settings, os.environ, transports=True)
    if faults:
        _refuse("\n".join(faults))
    for name in unpriced(loaded.settings):
        click.echo(f"settings: prices: what {name} costs is not known, so a hard budget refuses it", err=True)
    click.echo("The settings are fine.")


@main.command()
@_settings_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list, an object for each thing.")
def doctor(settings_file: Path | None, as_json: bool) -> None:
    """Look over what the tools stand on: the sandbox, each MCP server."""
    from bot.doctor import run_doctor

    sys.exit(run_doctor(_load(settings_file, None).settings, os.environ, json=as_json))


@main.command()
def schema() -> None:
    """Print the JSON Schema of settings.json."""
    import json

    from bot.settings import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


@main.group()
def threads() -> None:
    """Look at threads on disk; works beside a running bot."""


@threads.command("list")
@_settings_option
@_data_option
@click.option("--limit", default=50, show_default=True, help="How many, the most recent first.")
def list_threads(settings_file: Path | None, data: Path | None, limit: int) -> None:
    """List threads, the most recent first."""
    from bot import trace

    found = trace.list_threads(_load(settings_file, data).settings.data)
    for summary in found[:limit]:
        click.echo(f"{summary.at or '-':29}  {summary.messages:5} messages  {trace.plain(summary.name)}")
    if len(found) > limit:
        click.echo(f"… and {len(found) - limit} more; --limit shows them.")
    if not found:
        click.echo("No threads yet.")


@threads.command("show")
@click.argument("thread")
@_settings_option
@_data_option
def show_thread(thread: str, settings_file: Path | None, data: Path | None) -> None:
    """Print a thread's history. THREAD is its id, or the last part of it."""
    from bot import trace

    settings = _load(settings_file, data).settings
    folder = trace.find_thread(settings.data, thread)
    if folder is None:
        _fail(f"No single thread is called {thread!r}; `threadfast threads list` names them.")
    mask = _masker(settings)
    for line in trace.story_of(folder):
        click.echo(mask(line))


@main.command()
@click.argument("message")
@_settings_option
@_data_option
def why(message: str, settings_file: Path | None, data: Path | None) -> None:
    """Tell what happened to a message. MESSAGE is its id, or the reference of a failure."""
    from bot import trace

    settings = _load(settings_file, data).settings
    story = trace.why(settings.data, message)
    if not story:
        _fail(
            f"Nothing on disk knows {message!r}; `threadfast threads show THREAD` lists a thread's messages."
        )
    mask = _masker(settings)
    for line in story:
        click.echo(mask(line))


@main.command()
@_settings_option
@_data_option
@click.option("--by", type=click.Choice(["day", "user", "thread", "model"]), default="day", show_default=True)
@click.option(
    "--since", type=click.DateTime(["%Y-%m-%d"]), help="First day; by default 30 days ago. Days are UTC."
)
@click.option("--month", type=click.DateTime(["%Y-%m"]), help="One month in place of --since.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def usage(
    settings_file: Path | None,
    data: Path | None,
    by: Literal["day", "user", "thread", "model"],
    since: datetime | None,
    month: datetime | None,
    as_json: bool,
) -> None:
    """Tell what was spent on models; works beside a running bot."""
    from bot import usage_report

    if since and month:
        raise click.UsageError("--since and --month cannot be used together")
    folder = _load(settings_file, data).settings.data
    try:
        made = usage_report.report(folder, by, usage_report.period(since, month, datetime.now(UTC)))
    except NewerSchema as error:
        _refuse(str(error))
    if as_json:
        click.echo(usage_report.as_json(made))
    else:
        usage_report.show(made, sys.stdout)


@main.group("dead-letters")
def dead_letters() -> None:
    """Messages that were put aside because serving them kept failing."""


@dead_letters.command("list")
@_settings_option
@_data_option
def list_dead_letters(settings_file: Path | None, data: Path | None) -> None:
    """List dead letters."""
    from bot import trace

    found = trace.dead_letters(_load(settings_file, data).settings.data)
    for letter in found:
        click.echo(f"{letter.at}  {trace.plain(letter.message_id)}  {trace.plain(letter.thread_id)}")
        click.echo(f"    {trace.plain(letter.text, trace.SHOWN)}")
    if not found:
        click.echo("No dead letters.")


@dead_letters.command()
@click.argument("message")
@_settings_option
@_data_option
def resubmit(message: str, settings_file: Path | None, data: Path | None) -> None:
    """Put a dead letter back in line for the next start. The bot must not be running."""
    import anyio

    from bot import trace
    from bot.resubmit import resubmit as put_back

    folder = _load(settings_file, data).settings.data
    letters = [letter for letter in trace.dead_letters(folder) if letter.message_id == message]
    if not letters:
        _fail(f"{message!r} is no dead letter; `threadfast dead-letters list` names them.")
    try:
        anyio.run(put_back, folder, letters[-1])
    except FolderTaken as error:
        _refuse(f"{error}; stop it first")
    click.echo(f"{message} will be served at the next start.")


def _load(settings_file: Path | None, data: Path | None) -> Loaded:
    """Read the settings, say what is odd about them, and let --data override the folder."""
    from bot.settings import Loaded, load

    if settings_file is None and Path("settings.json").exists():
        settings_file = Path("settings.json")
    try:
        loaded = load(settings_file, environ=os.environ)
    except ConfigInvalid as error:
        _refuse(str(error))
    for warning in loaded.warnings:
        click.echo(f"settings: {warning}", err=True)
    if data is None:
        return loaded
    return Loaded(loaded.settings.model_copy(update={"data": data.absolute()}), loaded.warnings)


def _refuse(text: str) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(EX_CONFIG)


def _fail(text: str) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(1)
