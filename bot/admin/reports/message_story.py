"""The story of one message, from the journal, its thread's log, the ledger and the audit."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.admin.reports.line_reader import Damage
from bot.admin.reports.links import linked
from bot.admin.reports.thread import ToolUse, entries, in_json, journal, tools_used
from bot.admin.safe_text import flat, plain
from bot.store.reader import Reader, Thread
from threads.journal.records import Intent, Posted, Received, Record, Settled, Started
from threads.log import Entry
from threads.model import ThreadId, message_key

if TYPE_CHECKING:
    from bot.budget.budgets import Commit, Reserve

UNKNOWN = (
    (
        "It never reached the bot: it was not running, or the platform did not deliver it. `threadfast status` tells "
        "whether it is connected; what it missed it looks up when it is back."
    ),
    "It was not for the bot: in a channel it has to be mentioned, until it has joined the thread.",
    (
        "Its author is not listened to: other bots are not, nor who may not use the bot and only talks beside it "
        "(`access` in the settings)."
    ),
    "It is waiting on the platform's side: the disk refused to keep it, so it was not acknowledged and comes again.",
    (
        "The id is another one: `threadfast threads show THREAD` lists those of a thread. A link to the message in "
        "Slack or Discord will do, and so will the (ref …) of a failure, or the id of the bot's own post."
    ),
)
"""Possible reasons why nothing on disk knows a message."""

ENDS = {
    "answered": "It was answered.",
    "refused": "It was not taken, and its author was told why.",
    "failed": "It failed, and the thread was told so.",
    "stopped": "Somebody stopped it.",
    "withdrawn": "Its author deleted it before its turn.",
    "dead_letter": "It was put aside, because each try to serve it was interrupted. "
    "`threadfast dead-letters resubmit` puts it back in line.",
    "undelivered": "The platform refused each try to post the answer; the next post in the thread mentions it.",
}


ENDING = ("intent", "posted", "settled")
"""What a turn ends with: the kinds of event told last of those that have one time."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened; ``at`` is UTC, ISO 8601. ``what`` is one line, neither cut nor masked."""

    at: str
    kind: str
    what: str


@dataclass(slots=True)
class Story:
    """All that happened to one message. ``outcome`` is blank while it has none, ``by`` what it was merged into."""

    thread: str
    message_id: str
    events: list[Event] = field(default_factory=list)
    outcome: str = ""
    by: str = ""
    references: set[str] = field(default_factory=set)
    """Of its turns, as a failure's text shows them."""

    @property
    def verdict(self) -> str:
        if self.outcome:
            other = f" with message {plain(self.by)}" if self.by else ""
            known = ENDS.get(self.outcome, f"It ended as {self.outcome}.")
            return f"It was merged and answered{other}." if self.outcome == "merged" else known
        if any(event.kind == "started" for event in self.events):
            return "It has no outcome yet: it is being served, or was interrupted and is taken up at the next start."
        return "It has no outcome yet: it waits for its turn, or for the next start if the bot does not run."


def stories(
    reader: Reader,
    wanted: str,
    *,
    over: Callable[[Sequence[Thread]], Iterable[Thread]] = iter,
    thread: str = "",
) -> list[Story]:
    """Return the story of the message with this id, link, reference or post; empty when nothing on disk knows it.

    *over* goes through all threads when the journal knows nothing (it may show progress); *thread* narrows that.
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


def _from_journal(reader: Reader, word: str) -> Found:
    records = [*journal(reader, Damage(), (word,))]
    about = {r.message_id for r in records if _is_about(r, word)}
    if about - {word}:  # a reference, or a post: its message's own lines do not hold the word
        records = [*journal(reader, Damage(), tuple(about))]
    found: Found = {}
    for record in records:
        if record.message_id in about:
            key = record.thread_id, record.message_id
            story = found.setdefault(key, Story(*key))
            story.events.append(_of_record(record))
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
            stale = ", too old to be answered" if record.stale else ""
            what = f'from {_author(record)}{stale}: "{flat(record.text)}"{_files(record)}'
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


def _author(record: Received) -> str:
    name = f" ({plain(record.author.name)})" if record.author.name else ""
    return f"{plain(record.author.id) or 'somebody'}{name}"


def _files(record: Received) -> str:
    names = ", ".join(plain(file.name) for file in record.files)
    return f", with {names}" if names else ""


def _from_log(reader: Reader, thread: Thread, word: str, about: set[str]) -> Found:
    """Return what a log tells: first whom the word means, then all lines about them."""
    words = {word} | about
    ids = {
        entry.message_id
        for entry in entries(reader, thread, Damage(), having=[*map(in_json, words)])
        if words & {entry.message_id, entry.correlation_id, entry.platform_id}
    }
    found: Found = {}
    for entry in entries(reader, thread, Damage(), having=[*map(in_json, ids)]) if ids else ():
        if entry.message_id in ids:
            key = thread.name, entry.message_id
            story = found.setdefault(key, Story(*key))
            story.events.append(_of_entry(entry))
            if entry.kind == "settled":
                story.outcome, story.by = entry.outcome, entry.by
                story.references |= {entry.correlation_id} - {""}
    return found


def _of_entry(entry: Entry) -> Event:
    ref = f" (ref {entry.correlation_id})" if entry.correlation_id else ""
    match entry.kind:
        case "message":
            return Event(
                entry.at, "received", f'from {plain(entry.author) or "somebody"}: "{flat(entry.text)}"'
            )
        case "settled":
            by = f", with message {plain(entry.by)}" if entry.by else ""
            code = f", {entry.code}" if entry.code else ""
            return Event(entry.at, "settled", f"{entry.outcome}{code}{by}{ref}")
        case _:
            at = f" as {plain(entry.platform_id)}" if entry.platform_id else ""
            return Event(entry.at, "posted", f'{entry.kind}{at}: "{flat(entry.text)}"')


def _fill_in(reader: Reader, story: Story) -> None:
    """Add what the ledger and the audit know, and put all in order of time.

    Of what has the same time, a turn's post and outcome come last; the rest keeps its order.
    """
    from bot.admin.reports.audit_trail import Filter, describe, read_audit
    from bot.admin.reports.budget_state import calls_of

    since = min(event.at for event in story.events)
    turn = message_key(ThreadId.parse(story.thread), story.message_id) if story.thread.count(":") >= 3 else ""
    if turn:
        story.events += [_of_call(call) for call in calls_of(reader, turn, since[:10])]
    criteria = Filter(since[:10], about=[story.message_id, *story.references])
    audited = [one for one in read_audit(reader, criteria, Damage()) if one.thread_id in ("", story.thread)]
    failed_calls = {str(one.details.get("call")) for one in audited if one.kind == "tool"}
    for thread in reader.find(story.thread)[:1]:
        story.events += _of_tools(
            tools_used(reader, thread).get(story.message_id, []), story.events, failed_calls
        )
    for record in audited:
        by = f" by {plain(record.author)}" if record.author else ""
        story.events.append(Event(record.at, plain(record.kind), flat(describe(record)) + by))
    story.events.sort(key=lambda event: (event.at, event.kind in ENDING))


def _of_call(call: Commit | Reserve) -> Event:
    from bot.budget.budgets import Commit, Reserve
    from bot.budget.money import usd

    model = plain(call.call.model)
    match call:
        case Commit():
            cost = "price unknown" if call.micros is None else usd(call.micros)
            read, written = call.usage.prompt, call.usage.output
            cached = f" ({call.usage.cache_read:,} cached)" if call.usage.cache_read else ""
            end = "" if call.outcome == "ok" else f", {call.outcome}"
            if end and not (read or written or call.micros):
                return Event(call.at, "model call", f"{model}: {call.outcome}")
            return Event(
                call.at, "model call", f"{model}: {read:,}{cached} tokens in, {written:,} out, {cost}{end}"
            )
        case Reserve():
            return Event(
                call.at, "model call", f"{model}: began, no end on disk; counts as up to {usd(call.micros)}"
            )


def _of_tools(used: Sequence[ToolUse], events: Sequence[Event], reported: Container[str]) -> Iterator[Event]:
    """Return when each tool was called, and why it failed where no line of its own is *reported* of that call.

    Where a conversation of an earlier version does not say when, it is as of the last start.
    """
    start = max((event.at for event in events if event.kind in ("started", "received")), default="")
    for one in used:
        failed = f", failed: {flat(one.reason)}" if one.failed and one.call not in reported else ""
        yield Event(one.at or start, "tool", f"{plain(one.tool)} {flat(one.arguments)}{failed}")
