"""Commands that tell what happened and what was spent, from disk; they work beside a running bot."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click

from bot.cli.given import data_option, fail, load, masker, refuse, settings_option
from threads.errors import NewerSchema
from threads.workspace import FolderTaken


@click.group()
def threads() -> None:
    """Look at threads on disk; works beside a running bot."""


@threads.command("list")
@settings_option
@data_option
@click.option("--limit", default=50, show_default=True, help="How many, the most recent first.")
def list_threads(settings_file: Path | None, data: Path | None, limit: int) -> None:
    """List threads, the most recent first."""
    from bot import trace

    found = trace.list_threads(load(settings_file, data).settings.data)
    for summary in found[:limit]:
        click.echo(f"{summary.at or '-':29}  {summary.messages:5} messages  {trace.plain(summary.name)}")
    if len(found) > limit:
        click.echo(f"… and {len(found) - limit} more; --limit shows them.")
    if not found:
        click.echo("No threads yet.")


@threads.command("show")
@click.argument("thread")
@settings_option
@data_option
def show_thread(thread: str, settings_file: Path | None, data: Path | None) -> None:
    """Print a thread's history. THREAD is its id, or the last part of it."""
    from bot import trace

    loaded = load(settings_file, data)
    folder = trace.find_thread(loaded.settings.data, thread)
    if folder is None:
        fail(f"No single thread is called {thread!r}; `threadfast threads list` names them.")
    mask = masker(loaded)
    for line in trace.story_of(folder):
        click.echo(mask(line))


@click.command()
@click.argument("message")
@settings_option
@data_option
def why(message: str, settings_file: Path | None, data: Path | None) -> None:
    """Tell what happened to a message. MESSAGE is its id, or the reference of a failure."""
    from bot import trace

    loaded = load(settings_file, data)
    story = trace.why(loaded.settings.data, message)
    if not story:
        fail(
            f"Nothing on disk knows {message!r}; `threadfast threads show THREAD` lists a thread's messages."
        )
    mask = masker(loaded)
    for line in story:
        click.echo(mask(line))


@click.command()
@settings_option
@data_option
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
    folder = load(settings_file, data).settings.data
    try:
        made = usage_report.report(folder, by, usage_report.period(since, month, datetime.now(UTC)))
    except NewerSchema as error:
        refuse(str(error))
    if as_json:
        click.echo(usage_report.as_json(made))
    else:
        usage_report.show(made, sys.stdout)


@click.group("dead-letters")
def dead_letters() -> None:
    """Messages that were put aside because serving them kept failing."""


@dead_letters.command("list")
@settings_option
@data_option
def list_dead_letters(settings_file: Path | None, data: Path | None) -> None:
    """List dead letters."""
    from bot import trace

    found = trace.dead_letters(load(settings_file, data).settings.data)
    for letter in found:
        click.echo(f"{letter.at}  {trace.plain(letter.message_id)}  {trace.plain(letter.thread_id)}")
        click.echo(f"    {trace.plain(letter.text, trace.SHOWN)}")
    if not found:
        click.echo("No dead letters.")


@dead_letters.command()
@click.argument("message")
@settings_option
@data_option
def resubmit(message: str, settings_file: Path | None, data: Path | None) -> None:
    """Put a dead letter back in line for the next start. The bot must not be running."""
    import anyio

    from bot import trace
    from bot.resubmit import resubmit as put_back

    folder = load(settings_file, data).settings.data
    letters = [letter for letter in trace.dead_letters(folder) if letter.message_id == message]
    if not letters:
        fail(f"{message!r} is no dead letter; `threadfast dead-letters list` names them.")
    try:
        anyio.run(put_back, folder, letters[-1])
    except FolderTaken as error:
        refuse(f"{error}; stop it first")
    click.echo(f"{message} will be served at the next start.")
