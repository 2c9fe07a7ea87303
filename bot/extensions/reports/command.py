"""Commands that report what happened and what was spent. They read the disk only, so they work while the bot runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import click

from bot.extensions.reports.data_folder import SINCE, DataFolder, look_again, reads_data, shared_store
from bot.extensions.reports.threads import threads
from bot.host.invocation import fail, json_option, print_json, refuse

if TYPE_CHECKING:
    from bot.observe.audit import AuditRecord
    from bot.reports.dead_letters import DeadLetter
    from bot.reports.message_story import Story

__all__ = ["audit", "dead_letters", "threads", "usage", "why"]

LEDGER_FILES = 5
"""Files of the ledger, of about 2 MB each, that are read without a progress bar."""


@click.command()
@click.argument("message")
@click.option(
    "--thread", default="", help="Search only this thread (its id, or the end of its id). This is faster."
)
@json_option
@reads_data
def why(data: DataFolder, message: str, thread: str, as_json: bool) -> None:
    """Show what happened to a message. It lists all from its arrival to its outcome, with tools and cost.

    MESSAGE is its id, a link to it in Slack or Discord, the (ref …) of a failure, or the id of the bot's own post.
    """
    from functools import partial

    from bot.extensions.reports.tables import progress
    from bot.reports import message_story

    over = partial(progress, what="Looking through threads")
    found = message_story.stories(data.reader, message, over=over, thread=thread)
    if as_json:
        reasons = [] if found else list(message_story.UNKNOWN)
        data.print_json({"asked": message, "messages": [*map(_value, found)], "possible_reasons": reasons})
    elif found:
        for story in found:
            _print_story(data, story)
    else:
        click.echo(f"No record of {message!r}. Possible reasons:", err=True)
        for reason in message_story.UNKNOWN:
            click.echo(click.wrap_text(reason, 78, "  - ", "    "), err=True)
    if not found:
        sys.exit(1)


def _value(story: Story) -> dict[str, object]:
    return {
        "thread": story.thread,
        "message_id": story.message_id,
        "outcome": story.outcome or None,
        "merged_into": story.by or None,
        "verdict": story.verdict,
        "events": [{"at": event.at, "kind": event.kind, "what": event.what} for event in story.events],
    }


def _print_story(data: DataFolder, story: Story) -> None:
    from bot.extensions.reports.tables import Column, print_table, width
    from bot.reports.safe_text import SHOWN, line, plain

    click.echo(f"Message {plain(story.message_id)} in {plain(story.thread)}, {story.events[0].at[:10]} (UTC)")
    columns = [Column("Time", "whole"), Column("What", "whole", style="bold"), Column("")]
    rows = [[event.at[11:23], event.kind, line(data.mask(event.what), SHOWN)] for event in story.events]
    print_table(columns, rows)
    click.echo(f"{click.wrap_text(story.verdict, min(width(), 96))}\n")


@click.command()
@click.option(
    "--by",
    type=click.Choice(["day", "user", "thread", "model"]),
    default="day",
    show_default=True,
    help="How to group the sums.",
)
@click.option("--since", type=SINCE, help="First day (UTC): 2026-11-22, or 7d, 2w; by default 30d.")
@click.option(
    "--month", type=click.DateTime(["%Y-%m"]), metavar="YYYY-MM", help="One month in place of --since."
)
@click.option("--html", "as_html", is_flag=True, help="Print one file for a browser, with charts.")
@json_option
@reads_data
def usage(
    data: DataFolder,
    by: Literal["day", "user", "thread", "model"],
    since: str | None,
    month: datetime | None,
    as_html: bool,
    as_json: bool,
) -> None:
    """Show spending and limits. Works while the bot runs."""
    from bot.budget.accounts import spent_on
    from bot.budget.budgets import Policy
    from bot.config.scopes import day_limits
    from bot.extensions.reports import tables
    from bot.extensions.reports import usage as usage_report
    from bot.reports.budget_state import budgets
    from bot.reports.usage import By, period, reports

    if since and month:
        raise click.UsageError("--since and --month cannot be used together")
    now = datetime.now(UTC)
    over = partial(tables.progress, what="Reading the ledger", few=LEDGER_FILES)
    days = period(since, month, now)
    groups = [by, *(one for one in get_args(By) if as_html and one != by)]
    report, *others = reports(data.reader, groups, days, over)
    if report.files:
        settings = data.loaded.settings
        policy = Policy.of(settings.budget, day_limits(settings))
        report.limits = spent_on(now.date().isoformat(), budgets(data.reader), policy)
    if as_html:
        from bot.extensions.reports.export import write_usage

        write_usage(sys.stdout, [report, *others], report.limits, data.mask)
    elif as_json:
        click.echo(usage_report.as_json(report))
    else:
        usage_report.show(report, sys.stdout)


@click.command()
@click.option("--since", type=SINCE, default="7d", show_default=True, help="A day, or 30m, 12h, 7d, 2w.")
@click.option("--kind", multiple=True, help="Only this kind, such as approval; can be given more than once.")
@click.option("--thread", default="", help="Only this thread: its id, or the end of it.")
@click.option("-f", "--follow", is_flag=True, help="Print new records as they arrive, until Ctrl-C.")
@json_option
@reads_data
def audit(
    data: DataFolder, since: str, kind: tuple[str, ...], thread: str, follow: bool, as_json: bool
) -> None:
    """Show who decided what, and what the bot did by itself. Works while the bot runs.

    With --follow, --json prints one object per line.
    """
    from bot.reports.audit_trail import Filter, read_audit

    names = [found.name for found in data.reader.find(thread)] or [thread] if thread else []
    records = read_audit(data.reader, Filter(since, kind, names), data.damage, look_again if follow else None)
    if follow:
        for record in records:
            if as_json:
                data.print_json(_record_value(record), indent=None)
            else:
                click.echo("  ".join(_cells(data, record)))
    elif as_json:
        values = [_record_value(record) for record in records]
        data.print_json({"records": values, "damaged_lines": data.damage.lines})
    elif found := list(records):
        from bot.extensions.reports.tables import Column, print_table

        columns = [Column("When (UTC)", "whole"), Column("Kind", "whole", style="bold"), Column("Who", "cut")]
        print_table([*columns, Column("What")], [_cells(data, record) for record in found])
        if count := _feedback_count(found):
            click.echo(count)
    else:
        click.echo(f"Nothing in the audit since {since[:16].replace('T', ' ')} (UTC).")


def _record_value(record: AuditRecord) -> dict[str, object]:
    value = asdict(record)
    del value["v"]
    return value


def _feedback_count(records: Iterable[AuditRecord]) -> str:
    """Return how many answers were good and bad; blank without feedback.

    A person's last verdict on an answer counts.
    """
    verdicts = {
        (record.thread_id, record.message_id, record.author): record.details.get("verdict")
        for record in records
        if record.kind == "feedback"
    }
    count = Counter(verdicts.values())
    return f"Feedback: {count['up']} up, {count['down']} down." if count else ""


def _cells(data: DataFolder, record: AuditRecord) -> list[str]:
    from bot.extensions.reports.tables import WIDE, width
    from bot.reports.audit_trail import describe
    from bot.reports.safe_text import SHOWN, line

    ref = f"(ref {record.correlation_id})" if record.correlation_id else ""
    words = [describe(record)]
    if not ref or width() >= WIDE:  # `why` finds the rest by the reference
        words += [f"in {record.thread_id}"] if record.thread_id else []
        words += [f"message {record.message_id}"] if record.message_id else []
    words += [ref] if ref else []
    when = record.at[:19].replace("T", " ")
    return [when, line(record.kind), line(record.author, 20) or "-", line(data.mask(" ".join(words)), SHOWN)]


@click.group("dead-letters")
def dead_letters() -> None:
    """List and resubmit dead letters. These messages were set aside after repeated interruptions."""


def _letters(data: DataFolder) -> list[DeadLetter]:
    from functools import partial

    from bot.extensions.reports.tables import progress
    from bot.reports.dead_letters import dead_letters as read

    return read(data.reader, partial(progress, what="Looking through threads"))


@dead_letters.command("list")
@json_option
@reads_data
def list_dead_letters(data: DataFolder, as_json: bool) -> None:
    """List dead letters, oldest first. It shows the state of those that were resubmitted."""
    from bot.extensions.reports.tables import WIDE, Column, print_table, width
    from bot.reports.safe_text import line
    from threads.model import with_quoted

    letters = _letters(data)
    if as_json:
        data.print_json({"dead_letters": [*map(asdict, letters)]})
        return
    if not letters:
        click.echo("No dead letters.")
        return
    table = {
        Column("When (UTC)", "whole"): [one.at[:16].replace("T", " ") for one in letters],
        Column("Message", "whole", style="bold"): [line(one.message_id) for one in letters],
        Column("Who", "cut"): [line(one.author, 20) for one in letters],
        Column("Since then", "whole"): [line(one.again) or "-" for one in letters],
        Column("Text"): [line(data.mask(with_quoted(one.text, one.quoted))) for one in letters],
    }
    if width() >= WIDE:
        table[Column("Thread")] = [line(one.thread_id) for one in letters]
    print_table([*table], [*zip(*table.values(), strict=True)])


@dead_letters.command()
@click.argument("message")
@json_option
@reads_data
def resubmit(data: DataFolder, message: str, as_json: bool) -> None:
    """Put a dead letter back in line for the next start.

    The bot must not be running: it alone writes its journal. With PostgreSQL it may run.
    MESSAGE is the id that `dead-letters list` shows.
    """
    letters = [letter for letter in _letters(data) if letter.message_id == message]
    if not letters:
        fail(f"{message!r} is not a dead letter; `threadfast dead-letters list` lists them.")
    again, when = _put_back(data, letters[-1])
    if as_json:
        print_json({"message_id": message, "resubmitted_as": again})
    else:
        click.echo(f"{message} will be served {when}, as {again}.")


def _put_back(data: DataFolder, letter: DeadLetter) -> tuple[str, str]:
    """Make the message pending again, and return its new id and when it is served."""
    import anyio

    from bot.extensions.reports.resubmission import resubmissions, resubmit
    from threads.store.data_folder import FolderTaken

    if reader := shared_store(data.loaded):
        return next(one.id for one in resubmissions(letter) if reader.receive(one)), "by the next free worker"
    try:
        return anyio.run(resubmit, data.loaded.settings.data, letter), "at the next start"
    except FolderTaken as error:
        refuse(
            f"{error}; stop it first, and start it again afterwards. "
            "Or have its author say /retry in the thread: that needs no stop."
        )
