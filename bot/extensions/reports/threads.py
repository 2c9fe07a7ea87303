"""The commands that list, show and export threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from bot.extensions.reports.data_folder import SINCE, DataFolder, look_again, reads_data
from bot.host.invocation import fail, json_option, print_json

if TYPE_CHECKING:
    from bot.reports.thread import Summary
    from bot.reports.transcript import Mask, Transcript
    from bot.store.reader import Reader, Thread

WIDEST = 140
"""Columns of a terminal that has room for the last message too."""


@click.group()
def threads() -> None:
    """List, show and export threads. Works beside a running bot."""


@threads.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many to list.")
@click.option("--transport", default="", help="Only those of one transport, such as slack.")
@click.option("--since", type=SINCE, help="Only those with news since: a day, or 30m, 12h, 7d.")
@json_option
@reads_data
def list_threads(data: DataFolder, limit: int, transport: str, since: str | None, as_json: bool) -> None:
    """List threads, the latest first."""
    from datetime import datetime

    from bot.budget.money import dollars
    from bot.extensions.reports.tables import progress
    from bot.host.terminal import is_terminal
    from bot.reports.budget_state import budgets
    from bot.reports.thread import summaries

    found = data.reader.threads(transport)
    if since:
        found = [one for one in found if one.changed_at >= datetime.fromisoformat(since).timestamp()]
    totals, shown = budgets(data.reader), found[:limit]
    listed = [
        (thread, totals.total(("thread", thread.thread)).spent)
        for _, thread in zip(progress(shown, "Reading threads"), summaries(data.reader, shown), strict=True)
    ]
    if as_json:
        lines = [
            {**asdict(thread), "text": data.mask(thread.text), "usd": dollars(cost)}
            for thread, cost in listed
        ]
        print_json({"threads": lines, "total": len(found)})
    elif not found:
        click.echo("No threads yet." if not (transport or since) else "No such threads.")
    else:
        _print_list(data, listed)
        if len(found) > limit:
            click.echo(f"… and {len(found) - limit:,} more; --limit shows them.", err=not is_terminal())


def _print_list(data: DataFolder, summaries: list[tuple[Summary, int]]) -> None:
    """Print as many columns as there is room for: eighty hold when, how many, how it ended, and the id."""
    from bot.budget.money import usd
    from bot.extensions.reports.tables import WIDE, Column, print_table, width
    from bot.reports.safe_text import line, plain

    room = width()
    begin = 0 if room >= WIDE else len("2026-")
    table: dict[Column, list[str]] = {
        Column("Last (UTC)", "whole"): [one.at[begin:16].replace("T", " ") or "-" for one, _ in summaries],
        Column("Messages", "whole", right=True): [f"{one.messages:,}" for one, _ in summaries],
    }
    if room >= WIDE:
        table[Column("Cost", "whole", right=True)] = [usd(cost) if cost else "-" for _, cost in summaries]
    table[Column("Ended", "whole")] = [plain(one.outcome) or "pending" for one, _ in summaries]
    if room >= WIDE:
        table[Column("Who", "cut")] = [line(one.author, 20) or "-" for one, _ in summaries]
    table[Column("Thread", style="bold")] = [line(one.thread, 200) for one, _ in summaries]
    if room >= WIDEST:
        table[Column("Said last", "cut")] = [line(data.mask(one.text), 60) for one, _ in summaries]
    print_table([*table], [*zip(*table.values(), strict=True)])


def _the_one(reader: Reader, wanted: str) -> Thread:
    if not (found := reader.find(wanted)):
        fail(f"No thread is called {wanted!r}; `threadfast threads list` names them.")
    if len(found) > 1:
        names = "".join(f"\n  {folder.name}" for folder in found[:5])
        fail(f"{len(found)} threads end with {wanted!r}; give more of the id:{names}")
    return found[0]


def _transcript(
    data: DataFolder,
    thread: Thread,
    mask: Mask,
    last: int | None = None,
    wait: Callable[[], None] | None = None,
) -> Transcript:
    from bot.reports.thread import entries, tools_used
    from bot.reports.transcript import Transcript

    messages = entries(data.reader, thread, data.damage, last, wait=wait)
    return Transcript(thread.name, messages, tools_used(data.reader, thread), data.reader.files(thread), mask)


@threads.command("show")
@click.argument("thread")
@click.option("--last", type=click.IntRange(1), help="Only this many messages, the latest.")
@click.option("-f", "--follow", is_flag=True, help="Print new messages as they arrive, until Ctrl-C.")
@json_option
@reads_data
def show_thread(data: DataFolder, thread: str, last: int | None, follow: bool, as_json: bool) -> None:
    """Print a thread. It shows the messages, the tools that were used, and how each message ended.

    THREAD is its id, the end of its id, or a link to a message in Slack or Discord. With --follow, --json prints one
    object per line.
    """
    from bot.extensions.reports.tables import print_texts
    from bot.extensions.reports.transcript_formats import on_screen, write_json, write_jsonl
    from bot.reports.thread import waiting

    folder = _the_one(data.reader, thread)
    transcript = _transcript(data, folder, data.mask, last, look_again if follow else None)
    if as_json:
        (write_jsonl if follow else write_json)(sys.stdout, transcript)
    else:
        print_texts(on_screen(transcript))
        for pending in waiting(data.reader, folder.name):
            click.echo(f"Message {pending.message_id} has no outcome yet; `threadfast why` shows more.")


@threads.command("export")
@click.argument("thread", required=False)
@click.option(
    "--all", "every", is_flag=True, help="Write all threads, each to its own file in the folder --output."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "html", "json", "jsonl"]),
    default="md",
    show_default=True,
    help="Format of the output.",
)
@click.option("--html", "form", flag_value="html", help="The same as --format html: one file for a browser.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where to write; by default standard output."
)
@click.option("--files", type=click.Path(path_type=Path), help="A folder to copy the thread's files into.")
@click.option("--raw", is_flag=True, help="Do not mask secrets.")
@reads_data
def export_thread(
    data: DataFolder,
    thread: str | None,
    every: bool,
    form: str,
    output: Path | None,
    files: Path | None,
    raw: bool,
) -> None:
    """Write a whole thread to a file. It holds the messages, tools and outcomes, and the names of the files.

    THREAD is named as for `threads show`. Only you can read what is written (mode 0600). Existing files are replaced.
    """
    from bot.extensions.reports.tables import progress
    from bot.extensions.reports.transcript_formats import WRITERS
    from bot.page.export import write_thread

    write = WRITERS.get(form) or partial(write_thread, form=form)
    if every == bool(thread):
        raise click.UsageError("name one THREAD, or say --all")
    if every and output is None:
        raise click.UsageError("--all needs a folder: --output FOLDER")
    found, copied = data.reader.threads() if every else [_the_one(data.reader, thread or "")], 0
    for folder in progress(found, "Writing threads"):
        name = f"{folder.path.parent.name}~{folder.path.name}"
        target = output / f"{name}.{form}" if output and (every or output.is_dir()) else output
        with _written(target) as out:
            write(out, _transcript(data, folder, str if raw else data.mask))
        if files:
            copied += data.reader.copy_files(folder, files / name if every else files)
    if output:
        what = f"{len(found):,} thread{'' if len(found) == 1 else 's'}" if every else found[0].name
        click.echo(f"{what} written to {output}.", err=True)
    if files:
        click.echo(f"{copied:,} file{'' if copied == 1 else 's'} copied to {files}.", err=True)


@contextmanager
def _written(path: Path | None) -> Iterator[TextIO]:
    """Open a file that replaces *path* when all is written; standard output without a path."""
    if path is None:
        yield sys.stdout
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            yield out
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
