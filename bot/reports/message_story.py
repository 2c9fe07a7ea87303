"""The story of one message, from the journal, its thread's log, the ledger and the audit."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from bot.reports.line_reader import Damage
from bot.reports.links import linked
from bot.reports.safe_text import flat, plain
from bot.reports.thread import ToolUse, entries, in_json, journal, tools_used
from bot.store.reader import LAST, Reader, Thread
from threads.journal.records import Intent, Posted, Received, Record, Settled, Started
from threads.log import LogEntry
from threads.model import ThreadId, message_key, with_quoted

if TYPE_CHECKING:
    from bot.budget.budgets import Commit, Reserve

UNKNOWN = (
    "It never reached the bot: it was not running, or not connected. `threadfast status` shows both.",
    "It was not for the bot: in a channel it has to be mentioned, until it has joined the thread.",
    "The bot does not listen to its author: to another bot, or to somebody who may not use it (`access`).",
    "It is still waiting on the platform: the disk refused it, so the platform sends it again.",
    "The id is wrong: `threadfast threads show THREAD` lists them; a link or the (ref …) of a failure works too.",
)
"""Possible reasons why a message is not on disk."""

ENDS = {
    "answered": "It was answered.",
    "refused": "It was not accepted, and its author was told why.",
    "failed": "It failed, and the thread was told so.",
    "stopped": "Somebody stopped it.",
    "withdrawn": "It was deleted before it was answered.",
    "dead_letter": "It was set aside, because each attempt to answer it was interrupted. "
    "`threadfast dead-letters resubmit` puts it back in line.",
    "undelivered": "The platform refused each attempt to post the answer; the next post in the thread mentions it.",
}


ENDING = ("intent", "posted", "settled")
"""The kinds of event that end a turn: of events with the same time, they come last."""

AFTERWARDS = timedelta(minutes=10)
"""How long after its outcome something of a message is still written, such as the cost of a call that was stopped."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; ``at`` is UTC, ISO 8601. ``what`` is one line, neither cut nor masked."""

    at: str
    kind: str
    what: str


@dataclass(slots=True)
class Story:
    """All events of one message. ``outcome`` is blank while it has none; ``by`` is the message it was merged into."""

    thread: str
    message_id: str
    events: list[Event] = field(default_factory=list)
    outcome: str = ""
    by: str = ""
    references: set[str] = field(default_factory=set)
    """The references of its turns, as the text of a failure shows them."""

    @property
    def verdict(self) -> str:
        if self.outcome:
            other = f" with message {plain(self.by)}" if self.by else ""
            known = ENDS.get(self.outcome, f"It ended as {self.outcome}.")
            return f"It was merged and answered{other}." if self.outcome == "merged" else known
        if any(event.kind == "started" for event in self.events):
            return (
                "It has no outcome yet: it is being served, or was interrupted and resumes at the next start."
            )
        return (
            "It has no outcome yet: it waits for its turn, or for the next start if the bot is not running."
        )


def stories(
    reader: Reader,
    wanted: str,
    *,
    over: Callable[[Sequence[Thread]], Iterable[Thread]] = iter,
    thread: str = "",
) -> list[Story]:
    """Return the stories of the messages with this id, link, reference or post; none if nothing on disk has it.

    *over* iterates over all threads when the journal does not have it, and may show progress; *thread* narrows that.
    Raises `threads.errors.NewerSchema` and OSError.
    """
    link = linked(wanted)
    word = link[0] if link else wanted
    found = _from_journal(reader, word)
    whole = {key for key, story in found.items() if any(event.kind == "received" for event in story.events)}
    where = [*reader.find(thread)] if thread else [place for key in found for place in reader.find(key[0])]
    if not (where or thread or found):
        where = [*(reader.find(link[1]) if link else [])] or list(over(reader.holding([in_json(word)])))
    for place in dict.fromkeys(where):
        for key, story in _from_log(reader, place, word, {key[1] for key in found}).items():
            if key not in whole:
                found[key] = story
    for story in found.values():
        _fill_in(reader, story)
    return [story for story in found.values() if story.events]


Found = dict[tuple[str, str], Story]


def _story(found: Found, thread: str, message_id: str) -> Story:
    return found.setdefault((thread, message_id), Story(thread, message_id))


def _from_journal(reader: Reader, word: str) -> Found:
    records = [*journal(reader, Damage(), (word,))]
    about = {record.message_id for record in records if _is_about(record, word)}
    if about - {word}:  # a reference, or a post: its message's own lines do not hold the word
        records = [*journal(reader, Damage(), tuple(about))]
    found: Found = {}
    for record in records:
        if record.message_id in about:
            story = _story(found, record.thread_id, record.message_id)
            event = _of_record(record)
            if event.kind != "started" or event.what not in {one.what for one in story.events}:
                story.events.append(event)  # an attempt is written again with each decision of it
            if isinstance(record, Settled):
                story.outcome, story.by = record.outcome, record.by
            elif isinstance(record, Started):
                story.references.add(record.correlation_id)
    return found


def _is_about(record: Record, word: str) -> bool:
    match record:
        case Started():
            return word in (record.message_id, record.correlation_id)
        case Posted():
            return word in (record.message_id, record.platform_id)
        case _:
            return record.message_id == word


def _of_record(record: Record) -> Event:
    match record:
        case Received():
            name = f" ({plain(record.author.name)})" if record.author.name else ""
            stale = ", too old to be answered" if record.stale else ""
            files = ", ".join(plain(file.name) for file in record.files)
            said = flat(with_quoted(record.text, record.quoted))
            what = f'from {plain(record.author.id) or "somebody"}{name}{stale}: "{said}"'
            what += f", with {files}" if files else ""
            what += f", in place of message {plain(record.replaces)}" if record.replaces else ""
        case Started():
            what = f"attempt {record.attempt} (ref {record.correlation_id})"
        case Intent():
            code = f", {record.code}" if record.code else ""
            what = f'{record.post}{code}: "{flat(record.text)}"'
        case Posted():
            what = f"as {plain(record.platform_id)}"
        case Settled():
            what = record.outcome + (f", with message {plain(record.by)}" if record.by else "")
    return Event(record.at, record.kind, what)


def _from_log(reader: Reader, thread: Thread, word: str, about: set[str]) -> Found:
    """Return the stories in a thread's log: of the messages in *about*, and of those that *word* names."""
    words = {word} | about
    ids = {
        entry.message_id
        for entry in entries(reader, thread, Damage(), having=[*map(in_json, words)])
        if words & {entry.message_id, entry.correlation_id, entry.platform_id}
    }
    found: Found = {}
    for entry in entries(reader, thread, Damage(), having=[*map(in_json, ids)]) if ids else ():
        if entry.message_id in ids:
            story = _story(found, thread.name, entry.message_id)
            story.events.append(_of_entry(entry))
            if entry.kind == "settled":
                story.outcome, story.by = entry.outcome, entry.by
                story.references |= {entry.correlation_id} - {""}
    return found


def _of_entry(entry: LogEntry) -> Event:
    ref = f" (ref {entry.correlation_id})" if entry.correlation_id else ""
    match entry.kind:
        case "message":
            said = flat(with_quoted(entry.text, entry.quoted))
            what = f'from {plain(entry.author) or "somebody"}: "{said}"'
            what += f", in place of message {plain(entry.replaces)}" if entry.replaces else ""
            return Event(entry.at, "received", what)
        case "settled":
            by = f", with message {plain(entry.by)}" if entry.by else ""
            code = f", {entry.code}" if entry.code else ""
            return Event(entry.at, "settled", f"{entry.outcome}{code}{by}{ref}")
        case _ if entry.closed:
            decision = entry.closed.decision(plain(entry.closed.by))
            return Event(entry.at, "asked", f'"{flat(entry.text)}" {flat(decision)}')
        case _:
            at = f" as {plain(entry.platform_id)}" if entry.platform_id else ""
            return Event(entry.at, "posted", f'{entry.kind}{at}: "{flat(entry.text)}"')


def _fill_in(reader: Reader, story: Story) -> None:
    """Add the events of the ledger, the tools and the audit, and sort all by time.

    Of events with the same time, a turn's post and outcome come last; the others keep their order.
    """
    from bot.reports.audit_trail import Filter, describe, read_audit
    from bot.reports.budget_state import calls_of

    since = min(event.at for event in story.events)
    until = _written_until(max(event.at for event in story.events)) if story.outcome else LAST
    turn = message_key(ThreadId.parse(story.thread), story.message_id) if story.thread.count(":") >= 3 else ""
    if turn:
        story.events += [_of_call(call) for call in calls_of(reader, turn, since, until)]
    criteria = Filter(since[:10], about=[story.message_id, *story.references], until=until)
    audited = [one for one in read_audit(reader, criteria, Damage()) if one.thread_id in ("", story.thread)]
    reported = {str(one.details.get("call")) for one in audited if one.kind == "tool"}
    for thread in reader.find(story.thread)[:1]:
        all_used = tools_used(reader, thread).items()
        mine = f"{story.message_id}."  # a stage of a playbook has its name after the message's id
        used = [one for about, tools in all_used if f"{about}.".startswith(mine) for one in tools]
        story.events += _of_tools(used, story.events, reported)
    for record in audited:
        by = f" by {plain(record.author)}" if record.author else ""
        story.events.append(Event(record.at, plain(record.kind), flat(describe(record)) + by))
    story.events.sort(key=lambda event: (event.at, event.kind in ENDING))


def _written_until(settled_at: str) -> str:
    """Return the last day on which something is written of a message with an outcome."""
    try:
        return (datetime.fromisoformat(settled_at) + AFTERWARDS).date().isoformat()
    except (ValueError, OverflowError):  # a damaged record may have any time
        return LAST


def _of_call(call: Commit | Reserve) -> Event:
    from bot.budget.budgets import Commit, Reserve
    from bot.budget.money import usd

    model = plain(call.call.model)
    match call:
        case Commit():
            cost = "price unknown" if call.micros is None else usd(call.micros)
            read, written = call.usage.prompt, call.usage.output
            cached = f" ({call.usage.cache_read:,} cached)" if call.usage.cache_read else ""
            what = f"{read:,}{cached} tokens in, {written:,} out, {cost}"
            if call.outcome != "ok":
                what = f"{what}, {call.outcome}" if read or written or call.micros else call.outcome
        case Reserve():
            what = f"began, no end on disk; counts as up to {usd(call.micros)}"
    return Event(call.at, "model call", f"{model}: {what}")


def _of_tools(used: Sequence[ToolUse], events: Sequence[Event], reported: Container[str]) -> Iterator[Event]:
    """Yield an event for each call of a tool, with the reason of a failure if the audit has not *reported* it.

    A conversation of an earlier version has no times: its calls get the time of the last start.
    """
    start = max((event.at for event in events if event.kind in ("started", "received")), default="")
    for one in used:
        failed = f", failed: {flat(one.reason)}" if one.failed and one.call not in reported else ""
        yield Event(one.at or start, "tool", f"{plain(one.tool)} {flat(one.arguments)}{failed}")
