"""Commands about threads: which there are, what was said in one, and a copy to keep or hand over."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click
from click.shell_completion import CompletionItem

from bot.admin.cli.data_folder import SINCE, look_again, open_for_reading, report_damage
from bot.admin.cli.invocation import data_option, fail, json_option, load, masker, settings_option

if TYPE_CHECKING:
    from bot.admin.reports.line_reader import Damage
    from bot.admin.reports.thread import Summary
    from bot.admin.reports.thread_folders import Folder
    from bot.admin.reports.transcript import Mask, Transcript

WIDEST = 140
"""Columns of a terminal that has room for what was said last too."""

OFFERED = 50
"""Threads that a shell is offered to complete a name with."""


@click.group()
def threads() -> None:
    """List, show and export threads. Works beside a running bot."""


@threads.command("list")
@settings_option
@data_option
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many, the latest first."
)
@click.option("--transport", default="", help="Only those of one transport, such as slack.")
@click.option("--since", type=SINCE, help="Only those with something new since: a day, or 30m, 12h, 7d.")
@json_option
def list_threads(
    settings_file: Path | None,
    data: Path | None,
    limit: int,
    transport: str,
    since: str | None,
    as_json: bool,
) -> None:
    """List threads, the one last written to first."""
    from datetime import datetime

    from bot.admin import terminal
    from bot.admin.reports.budget_state import budgets
    from bot.admin.reports.thread import summary
    from bot.admin.reports.thread_folders import folders
    from bot.budget.budgets import dollars

    with open_for_reading(settings_file, data) as loaded:
        mask = masker(loaded)
        found = folders(loaded.settings.data, transport)
        if since:
            found = [one for one in found if one.changed_at >= datetime.fromisoformat(since).timestamp()]
        shown = [summary(folder) for folder in terminal.progress(found[:limit], "Reading threads")]
        told = budgets(loaded.settings.data)
        spent = [told.total(("thread", one.thread)).spent for one in shown]
        if as_json:
            lines = [
                {**asdict(one), "text": mask(one.text), "usd": dollars(cost)}
                for one, cost in zip(shown, spent, strict=True)
            ]
            click.echo(json.dumps({"threads": lines, "total": len(found)}, indent=2))
        elif not found:
            click.echo("No threads yet." if not (transport or since) else "No such threads.")
        else:
            _show_list([(one, cost) for one, cost in zip(shown, spent, strict=True)], mask)
            if len(found) > limit:
                click.echo(
                    f"… and {len(found) - limit:,} more; --limit shows them.", err=not terminal.is_terminal()
                )


def _show_list(shown: list[tuple[Summary, int]], mask: Mask) -> None:
    """Print as much as there is room for: eighty columns hold when, how many, how it ended, and the id."""
    from bot.admin.safe_text import line, plain
    from bot.admin.terminal import WIDE, Column, print_table, width
    from bot.budget.accounts import usd

    wide = {
        Column("Last (UTC)", "whole"): [one.at[:16].replace("T", " ") or "-" for one, _ in shown],
        Column("Messages", "whole", right=True): [f"{one.messages:,}" for one, _ in shown],
        Column("Cost", "whole", right=True): [usd(cost) if cost else "-" for _, cost in shown],
        Column("Ended", "whole"): [plain(one.outcome) or "pending" for one, _ in shown],
        Column("Who", "cut"): [line(one.author, 20) or "-" for one, _ in shown],
        Column("Thread", style="bold"): [line(one.thread, 200) for one, _ in shown],
        Column("Said last", "cut"): [line(mask(one.text), 60) for one, _ in shown],
    }
    left_out = {"Said last"} if width() < WIDEST else set()
    if width() < WIDE:
        left_out |= {"Cost", "Who"}
        first = next(iter(wide))
        wide[first] = [when[5:] or when for when in wide[first]]
    kept = {column: cells for column, cells in wide.items() if column.title not in left_out}
    print_table([*kept], [*zip(*kept.values(), strict=True)])


def _completed(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the last parts of the latest threads' ids: shells stumble over the colons of a whole one."""
    from bot.admin.reports.thread_folders import folders

    try:
        found = folders(load(ctx.params.get("settings_file"), ctx.params.get("data")).settings.data)[:OFFERED]
    except (OSError, SystemExit):
        return []  # a completion never complains
    last = [folder.name.rpartition(":")[2] for folder in found]
    return [
        CompletionItem(name, help=folder.name)
        for name, folder in zip(last, found, strict=True)
        if name.startswith(incomplete) and last.count(name) == 1
    ]


def _the_one(data: Path, wanted: str) -> Folder:
    from bot.admin.reports.thread_folders import find

    found = find(data, wanted)
    if not found:
        fail(f"No thread is called {wanted!r}; `threadfast threads list` names them.")
    if len(found) > 1:
        names = "".join(f"\n  {folder.name}" for folder in found[:5])
        fail(f"{len(found)} threads end with {wanted!r}; say more of the id:{names}")
    return found[0]


def _transcript(
    folder: Folder,
    damage: Damage,
    mask: Mask,
    last: int | None = None,
    wait: Callable[[], None] | None = None,
) -> Transcript:
    from bot.admin.reports.thread import entries, tools_used
    from bot.admin.reports.transcript import Transcript
    from bot.admin.reports.workspace_files import files_of

    return Transcript(
        folder.name,
        entries(folder, damage, last, wait=wait),
        tools_used(folder),
        files_of(folder.path),
        mask,
    )


@threads.command("show")
@click.argument("thread", shell_complete=_completed)
@settings_option
@data_option
@click.option("--last", type=click.IntRange(1), help="Only the last so many messages.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is said from now on, until Ctrl-C.")
@json_option
def show_thread(
    thread: str, settings_file: Path | None, data: Path | None, last: int | None, follow: bool, as_json: bool
) -> None:
    """Print what was said in a thread. With the tools that were used, and how each message ended.

    THREAD is its id, the end of its id, or a link to a message in Slack or Discord. With --follow, --json prints an
    object a line.
    """
    from bot.admin.reports.line_reader import Damage
    from bot.admin.reports.thread import waiting
    from bot.admin.reports.transcript import pieces, write_json, write_jsonl
    from bot.admin.terminal import print_texts

    with open_for_reading(settings_file, data) as loaded:
        folder, damage = _the_one(loaded.settings.data, thread), Damage()
        told = _transcript(folder, damage, masker(loaded), last, look_again if follow else None)
        if as_json:
            (write_jsonl if follow else write_json)(sys.stdout, told)
        else:
            print_texts((piece.text, piece.style, piece.indent) for piece in pieces(told))
            for owed in waiting(loaded.settings.data, folder.name):
                click.echo(f"Message {owed.message_id} has no outcome yet; `threadfast why` tells more.")
        report_damage(damage.lines)


@threads.command("export")
@click.argument("thread", required=False, shell_complete=_completed)
@settings_option
@data_option
@click.option("--all", "every", is_flag=True, help="All threads, each into a file in the folder --output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "json", "jsonl"]),
    default="md",
    show_default=True,
    help="Form of what is written.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to; standard output by default.")
@click.option("--files", type=click.Path(path_type=Path), help="A folder to copy the thread's files into.")
@click.option("--raw", is_flag=True, help="Do not mask secrets.")
def export_thread(
    thread: str | None,
    settings_file: Path | None,
    data: Path | None,
    every: bool,
    form: str,
    output: Path | None,
    files: Path | None,
    raw: bool,
) -> None:
    """Write a whole thread, for keeping or handing over. Who said what and when, tools, outcomes, names of files.

    THREAD is named as for `threads show`. Files are written for your eyes only (0600) and replaced if they exist.
    """
    from bot.admin.reports.line_reader import Damage
    from bot.admin.reports.thread_folders import folders
    from bot.admin.reports.transcript import WRITERS
    from bot.admin.reports.workspace_files import copy_files
    from bot.admin.terminal import progress

    if every == bool(thread):
        raise click.UsageError("name one THREAD, or say --all")
    if every and output is None:
        raise click.UsageError("--all needs a folder: --output FOLDER")
    with open_for_reading(settings_file, data) as loaded:
        mask, damage, copied = (str if raw else masker(loaded)), Damage(), 0
        folder = loaded.settings.data
        found = folders(folder) if every else [_the_one(folder, thread or "")]
        for one in progress(found, "Writing threads"):
            name = f"{one.path.parent.name}~{one.path.name}"
            target = output / f"{name}.{form}" if output and (every or output.is_dir()) else output
            with _written(target) as out:
                WRITERS[form](out, _transcript(one, damage, mask))
            if files:
                copied += copy_files(one.path, files / name if every else files)
        if output:
            what = f"{len(found):,} thread{'' if len(found) == 1 else 's'}" if every else found[0].name
            click.echo(f"{what} written to {output}.", err=True)
        if files:
            click.echo(f"{copied:,} file{'' if copied == 1 else 's'} copied to {files}.", err=True)
        report_damage(damage.lines)


@contextmanager
def _written(path: Path | None) -> Iterator[TextIO]:
    """Open a file that takes the place of *path* when all is written; standard output without one."""
    if path is None:
        yield sys.stdout
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as out:
            yield out
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
