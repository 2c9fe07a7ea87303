"""Commands that tell what happened and what was spent, from disk; they work beside a running bot."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from bot.admin.cli.data_folder import SINCE, look_again, open_for_reading, report_damage
from bot.admin.cli.invocation import data_option, fail, json_option, masker, refuse, settings_option
from threads.store.data_folder import FolderTaken

if TYPE_CHECKING:
    from bot.admin.dead_letters.listing import DeadLetter
    from bot.admin.reports.message_story import Story
    from bot.admin.reports.transcript import Mask
    from bot.observe.audit import AuditRecord


@click.command()
@click.argument("message")
@settings_option
@data_option
@click.option(
    "--thread", default="", help="Search only this thread (its id, or the end of its id). This is faster."
)
@json_option
def why(message: str, settings_file: Path | None, data: Path | None, thread: str, as_json: bool) -> None:
    """Show what happened to a message. From its arrival to its outcome, with its tool calls and its cost.

    MESSAGE is its id, a link to it in Slack or Discord, the (ref …) of a failure, or the id of the bot's own post.
    """
    from functools import partial

    from bot.admin import terminal
    from bot.admin.reports import message_story
    from bot.admin.reports.transcript import mask_strings

    with open_for_reading(settings_file, data) as loaded:
        mask = masker(loaded)
        over = partial(terminal.progress, what="Looking through threads")
        found = message_story.stories(loaded.settings.data, message, over=over, thread=thread)
        if as_json:
            reasons = [] if found else list(message_story.UNKNOWN)
            value = {"asked": message, "messages": [*map(_value, found)], "possible_reasons": reasons}
            click.echo(json.dumps(mask_strings(value, mask), indent=2))
        for one in () if as_json else found:
            _tell(one, mask)
        if not found:
            if not as_json:
                click.echo(f"No record of {message!r}. Possible reasons:", err=True)
                for reason in message_story.UNKNOWN:
                    click.echo(click.wrap_text(reason, 78, "  - ", "    "), err=True)
            sys.exit(1)


def _value(one: Story) -> dict[str, object]:
    return {
        "thread": one.thread,
        "message_id": one.message_id,
        "outcome": one.outcome or None,
        "merged_into": one.by or None,
        "verdict": one.verdict,
        "events": [{"at": event.at, "kind": event.kind, "what": event.what} for event in one.events],
    }


def _tell(one: Story, mask: Mask) -> None:
    from bot.admin.safe_text import SHOWN, line, plain
    from bot.admin.terminal import Column, print_table, width

    click.echo(f"Message {plain(one.message_id)} in {plain(one.thread)}, {one.events[0].at[:10]} (UTC)")
    columns = [Column("Time", "whole"), Column("What", "whole", style="bold"), Column("")]
    print_table(
        columns, [[event.at[11:23], event.kind, line(mask(event.what), SHOWN)] for event in one.events]
    )
    click.echo(f"{click.wrap_text(one.verdict, min(width(), 96))}\n")


@click.command()
@settings_option
@data_option
@click.option(
    "--by",
    type=click.Choice(["day", "user", "thread", "model"]),
    default="day",
    show_default=True,
    help="What to sum up by.",
)
@click.option("--since", type=SINCE, help="First day (UTC): 2026-11-22, or 7d, 2w; by default 30d.")
@click.option(
    "--month", type=click.DateTime(["%Y-%m"]), metavar="YYYY-MM", help="One month in place of --since."
)
@json_option
def usage(
    settings_file: Path | None,
    data: Path | None,
    by: Literal["day", "user", "thread", "model"],
    since: str | None,
    month: datetime | None,
    as_json: bool,
) -> None:
    """Show spending and limits. Works while the bot runs."""
    from bot.admin.reports import usage as usage_report
    from bot.admin.reports.budget_state import budgets
    from bot.budget.accounts import spent_on
    from bot.budget.budgets import Policy

    if since and month:
        raise click.UsageError("--since and --month cannot be used together")
    now = datetime.now(UTC)
    with open_for_reading(settings_file, data) as loaded:
        folder = loaded.settings.data
        made = usage_report.report(folder, by, usage_report.period(since, month, now))
        if made.files:
            policy = Policy.of(loaded.settings.budget)
            made.limits = spent_on(now.date().isoformat(), budgets(folder), policy)
        if as_json:
            click.echo(usage_report.as_json(made))
        else:
            usage_report.show(made, sys.stdout)


@click.command()
@settings_option
@data_option
@click.option("--since", type=SINCE, default="7d", show_default=True, help="A day, or 30m, 12h, 7d, 2w.")
@click.option("--kind", multiple=True, help="Only this kind, such as approval; can be given more than once.")
@click.option("--thread", default="", help="Only this thread: its id, or the end of it.")
@click.option("-f", "--follow", is_flag=True, help="Print new records as they arrive, until Ctrl-C.")
@json_option
def audit(
    settings_file: Path | None,
    data: Path | None,
    since: str,
    kind: tuple[str, ...],
    thread: str,
    follow: bool,
    as_json: bool,
) -> None:
    """Show who decided what, and what the bot did by itself. Works while the bot runs.

    With --follow, --json prints an object a line.
    """
    from bot.admin.reports.audit_trail import Filter, as_value, read_audit
    from bot.admin.reports.line_reader import Damage
    from bot.admin.reports.thread_folders import find
    from bot.admin.reports.transcript import mask_strings

    with open_for_reading(settings_file, data) as loaded:
        mask, damage, folder = masker(loaded), Damage(), loaded.settings.data
        names = [one.name for one in find(folder, thread)] or [thread] if thread else []
        found = read_audit(folder, Filter(since, kind, names), damage, look_again if follow else None)
        if follow:
            for one in found:
                value = mask_strings(as_value(one), mask)
                click.echo(json.dumps(value) if as_json else "  ".join(_cells(one, mask)))
        elif as_json:
            records = [mask_strings(as_value(one), mask) for one in found]
            click.echo(json.dumps({"records": records, "damaged_lines": damage.lines}, indent=2))
        else:
            _show_audit([*found], since, mask)
        report_damage(damage.lines)


def _show_audit(found: list[AuditRecord], since: str, mask: Mask) -> None:
    from bot.admin.terminal import Column, print_table

    if not found:
        click.echo(f"Nothing in the audit since {since[:16].replace('T', ' ')} (UTC).")
        return
    columns = [Column("When (UTC)", "whole"), Column("Kind", "whole", style="bold"), Column("Who", "cut")]
    print_table([*columns, Column("What")], [_cells(one, mask) for one in found])


def _cells(one: AuditRecord, mask: Mask) -> list[str]:
    from bot.admin.reports.audit_trail import describe
    from bot.admin.safe_text import SHOWN, line
    from bot.admin.terminal import WIDE, width

    ref = f"(ref {one.correlation_id})" if one.correlation_id else ""
    about = [describe(one)]
    if not ref or width() >= WIDE:  # `why` finds the rest by the reference
        about += [f"in {one.thread_id}"] if one.thread_id else []
        about += [f"message {one.message_id}"] if one.message_id else []
    about += [ref] if ref else []
    when = one.at[:19].replace("T", " ")
    return [when, line(one.kind), line(one.author, 20) or "-", line(mask(" ".join(about)), SHOWN)]


@click.group("dead-letters")
def dead_letters() -> None:
    """List and resubmit dead letters. These messages were put aside after repeated interruptions."""


def _letters(data: Path) -> list[DeadLetter]:
    from functools import partial

    from bot.admin.dead_letters.listing import dead_letters as read
    from bot.admin.terminal import progress

    return read(data, partial(progress, what="Looking through threads"))


@dead_letters.command("list")
@settings_option
@data_option
@json_option
def list_dead_letters(settings_file: Path | None, data: Path | None, as_json: bool) -> None:
    """List dead letters, oldest first. Shows what became of those that were resubmitted."""
    from dataclasses import asdict

    from bot.admin.reports.transcript import mask_strings
    from bot.admin.safe_text import line
    from bot.admin.terminal import WIDE, Column, print_table, width

    with open_for_reading(settings_file, data) as loaded:
        mask, found = masker(loaded), _letters(loaded.settings.data)
        if as_json:
            click.echo(json.dumps(mask_strings({"dead_letters": [*map(asdict, found)]}, mask), indent=2))
        elif not found:
            click.echo("No dead letters.")
        else:
            columns = [
                Column("When (UTC)", "whole"),
                Column("Message", "whole", style="bold"),
                Column("Who", "cut"),
                Column("Since then", "whole"),
                Column("Text"),
                Column("Thread"),
            ]
            rows = [
                [
                    one.at[:16].replace("T", " "),
                    line(one.message_id),
                    line(one.author, 20),
                    line(one.again) or "-",
                    line(mask(one.text)),
                    line(one.thread_id),
                ]
                for one in found
            ]
            if width() < WIDE:
                columns, rows = columns[:-1], [row[:-1] for row in rows]
            print_table(columns, rows)


@dead_letters.command()
@click.argument("message")
@settings_option
@data_option
@json_option
def resubmit(message: str, settings_file: Path | None, data: Path | None, as_json: bool) -> None:
    """Put a dead letter back in line for the next start.

    The bot must not be running: it alone writes its journal. MESSAGE is the id that `dead-letters list` shows.
    """
    import anyio

    from bot.admin.dead_letters.resubmit import resubmit as put_back

    with open_for_reading(settings_file, data) as loaded:
        folder = loaded.settings.data
        letters = [letter for letter in _letters(folder) if letter.message_id == message]
        if not letters:
            fail(f"{message!r} is not a dead letter; `threadfast dead-letters list` lists them.")
        try:
            again = anyio.run(put_back, folder, letters[-1])
        except FolderTaken as error:
            refuse(
                f"{error}; stop it first, and start it again afterwards. "
                "Or have its author say /retry in the thread: that needs no stop."
            )
        if as_json:
            click.echo(json.dumps({"message_id": message, "resubmitted_as": again}))
        else:
            click.echo(f"{message} will be served at the next start, as {again}.")
