"""The five kinds of journal record, and their fold: which messages have no outcome yet.

    received -> [started ->]* [intent -> posted ->] settled

`Ledger` is the pure fold of records in their order. A second ``received`` before the start is an edit.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Annotated, Literal, assert_never

from pydantic import Field, TypeAdapter

from threads.journal.deduplication import KnownMessages
from threads.model import (
    Asked,
    Attachment,
    Author,
    Edited,
    Incoming,
    Outcome,
    OutgoingKind,
    Taken,
    ThreadId,
    TurnSettled,
    UsageCounted,
    Via,
    Way,
    message_key,
)
from threads.store.checksummed_lines import SCHEMA_VERSION

RECENT = 256
"""Settled messages that keep all their records, so that a start can show their outcomes again."""


@dataclass(slots=True, kw_only=True)
class _Record:
    """The message that a record is about. The journal sets ``seq`` and ``at``."""

    thread_id: str
    message_id: str
    seq: int = 0
    at: str = ""
    v: int = SCHEMA_VERSION


@dataclass(slots=True, kw_only=True)
class Received(_Record):
    author: Author
    text: str
    sent_at: str = ""
    via: Via = "direct"
    files: tuple[Attachment, ...] = ()
    alias: str = ""
    stale: bool = False
    reply_address: str = field(default="", repr=False)
    unsure: bool = False
    """A record of it may be lost, so it may have been posted although no record says so."""
    quoted: str = ""
    replaces: str = ""
    kind: Literal["received"] = "received"

    @classmethod
    def of(cls, incoming: Incoming) -> Received:
        return cls(
            thread_id=str(incoming.thread),
            message_id=incoming.id,
            author=incoming.author,
            text=incoming.text,
            sent_at=incoming.sent_at,
            via=incoming.via,
            files=incoming.files,
            alias=incoming.alias,
            stale=incoming.stale,
            reply_address=incoming.reply_address,
            quoted=incoming.quoted,
            replaces=incoming.replaces,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that identify the message, its own first."""
        thread = ThreadId.parse(self.thread_id)
        key = message_key(thread, self.message_id)
        return (key, message_key(thread, self.alias)) if self.alias else (key,)

    @property
    def incoming(self) -> Incoming:
        return Incoming(
            self.message_id,
            ThreadId.parse(self.thread_id),
            self.author,
            self.text,
            self.sent_at,
            via=self.via,
            files=self.files,
            alias=self.alias,
            stale=self.stale,
            reply_address=self.reply_address,
            quoted=self.quoted,
            replaces=self.replaces,
        )


@dataclass(slots=True, kw_only=True)
class Started(_Record):
    """A turn began. ``attempt`` counts from 1. It is durable before anybody sees anything of the turn.

    After a crash it is durable before the turn runs. Otherwise a message that kills the process would loop for ever.
    It is written again, with the questions ``asked`` so far, when one of them is closed.
    """

    attempt: int
    correlation_id: str
    asked: tuple[Asked, ...] = ()
    kind: Literal["started"] = "started"


@dataclass(slots=True, kw_only=True)
class Intent(_Record):
    """A post that is about to go out, and the outcome that it stands for.

    ``mentions`` are the keys of messages whose undelivered replies the text mentions. ``ways`` are the person's ways
    to go on.
    """

    text: str
    post: OutgoingKind
    outcome: Outcome
    code: str = ""
    ways: tuple[Way, ...] = ()
    mentions: tuple[str, ...] = ()
    kind: Literal["intent"] = "intent"


@dataclass(slots=True, kw_only=True)
class Posted(_Record):
    platform_id: str
    kind: Literal["posted"] = "posted"


@dataclass(slots=True, kw_only=True)
class Settled(_Record):
    """The outcome of a message. If it has no post of its own, ``by`` is the message whose post covers it.

    ``logged``: the threads' logs had every outcome up to the record of this number when this one was written.
    ``interrupted``: an earlier process may have left an unfinished answer in the thread. ``shown`` is what people saw
    of an answer that was stopped, and ``spent`` what the turn used.
    """

    outcome: Outcome
    by: str = ""
    alias: str = ""
    logged: int = 0
    interrupted: bool = False
    shown: str = ""
    spent: UsageCounted | None = None
    kind: Literal["settled"] = "settled"


Record = Received | Started | Intent | Posted | Settled


@cache
def record_adapter() -> TypeAdapter[Record]:
    """Return the validator of journal lines, built on first use."""
    return TypeAdapter(Annotated[Record, Field(discriminator="kind")])


@dataclass(slots=True)
class PendingMessage:
    """A message without an outcome yet. ``platform_id`` is set as soon as its post is known to be out.

    ``begun``: its turn began, although ``started`` may not be durable yet. ``edits`` counts edits that are being
    written. ``recovered``: it was pending when the process started. ``interrupted``: its turn had begun by then, and
    an unfinished answer may still be visible. ``dropped``: its post was given up.
    ``taken_at`` is when its thread was taken over from another worker, by the event loop's clock. ``over_rate``: all
    workers together have had too many messages of its author; None where each process counts for itself.
    """

    received: Received
    incoming: Incoming = field(init=False)
    started: Started | None = None
    intent: Intent | None = None
    platform_id: str = ""
    begun: bool = False
    edits: int = 0
    recovered: bool = False
    interrupted: bool = False
    dropped: bool = False
    taken_at: float = -math.inf
    over_rate: bool | None = None
    asked: tuple[Asked, ...] = ()
    """Its closed questions."""
    shown: str = ""
    """What people saw of its answer, if that was stopped."""
    spent: UsageCounted | None = None
    """What its turn has used."""

    @property
    def damaged(self) -> bool:
        """Whether its ``received`` record is lost. Later records show that it existed, but not its text."""
        return not self.received.author.id

    @property
    def may_be_out(self) -> bool:
        """Whether another process may have posted something of its answer, finished or not."""
        return self.received.unsure or self.interrupted

    @property
    def code(self) -> str:
        """Return why it fails or is refused. Blank for an answer."""
        return self.intent.code if self.intent else ""

    @property
    def is_over(self) -> bool:
        """Whether its turn came to an end. That stands, in its place, whatever the settings say after a restart."""
        return self.intent is not None and self.started is not None

    @property
    def attempts(self) -> int:
        return self.started.attempt if self.started else 0

    @property
    def reference(self) -> str:
        """Return the correlation id of its last turn. Blank before the first."""
        return self.started.correlation_id if self.started else ""

    def __post_init__(self) -> None:
        self.incoming = self.received.incoming

    def amend(self, received: Received) -> None:
        """Replace the text with that of an edit. The message keeps its place in the order."""
        before = self.received
        self.received = replace(received, seq=before.seq, at=before.at, unsure=before.unsure)
        self.incoming = received.incoming

    def say_above(self, note: str) -> None:
        """Put a note above the text that is about to be posted, once. It is in memory only."""
        assert self.intent is not None
        if not self.intent.text.startswith(note):
            self.intent = replace(self.intent, text=f"{note}\n\n{self.intent.text}")

    def start(self, attempt: int, correlation_id: str) -> Started:
        r = self.received
        return Started(
            thread_id=r.thread_id,
            message_id=r.message_id,
            attempt=attempt,
            correlation_id=correlation_id,
            asked=self.asked,
        )

    def settled(self, outcome: Outcome, *, by: str = "") -> Settled:
        r = self.received
        end = Settled(thread_id=r.thread_id, message_id=r.message_id, outcome=outcome, by=by, alias=r.alias)
        # If the process dies now, an unfinished answer of such a turn would stay in the thread.
        cut = self.started is not None and outcome in ("stopped", "withdrawn", "undelivered")
        end.interrupted = self.interrupted or cut
        end.shown, end.spent = self.shown, self.spent
        return end

    def taken(self) -> Taken:
        incoming = self.incoming
        return Taken(incoming.text, incoming.author.id, self.recovered, self.received.replaces)

    def ended(self, end: Settled) -> TurnSettled:
        return TurnSettled(end.outcome, self.recovered, self.interrupted, self.code, end.shown)

    def posted(self) -> Posted:
        r = self.received
        return Posted(thread_id=r.thread_id, message_id=r.message_id, platform_id=self.platform_id)

    def records(self) -> Iterator[Record]:
        """Return the records that fold to this message."""
        yield self.received
        yield from (part for part in (self.started, self.intent) if part is not None)
        if self.platform_id:
            before = self.intent or self.received
            yield replace(self.posted(), seq=before.seq, at=before.at)


@dataclass(slots=True)
class Ledger(KnownMessages):
    """The fold of the journal's records. ``pending`` and ``settled`` are in the order of the file.

    ``unlogged`` maps a record's number to an outcome that may be missing in the threads' logs, oldest first.
    """

    undelivered: dict[str, dict[str, Settled]] = field(default_factory=dict)
    recent: deque[tuple[str, PendingMessage]] = field(default_factory=lambda: deque(maxlen=RECENT))
    unlogged: dict[int, tuple[PendingMessage, Settled]] = field(default_factory=dict)
    seq: int = 0
    applied: int = 0
    _logged: int = 0

    def stamp(self, record: Record, at: str) -> None:
        """Set a record's number and time, and how far the threads' logs are complete."""
        self.seq += 1
        record.seq, record.at = self.seq, at
        if isinstance(record, Settled):  # what is not applied yet is not logged
            record.logged = next(iter(self.unlogged), self.applied + 1) - 1

    def sort(self) -> None:
        """Sort the unlogged outcomes. A compaction writes them in another order."""
        self.unlogged = dict(sorted(self.unlogged.items()))

    def log_holds(self, *ends: int) -> None:
        """Note that the threads' logs have the outcomes of these numbers."""
        for seq in ends:
            self.unlogged.pop(seq, None)

    async def amend(self, edited: Edited, append: Callable[[Received], Awaitable[None]]) -> bool:
        """Replace the text of a message with *append*. Returns False if its turn has started."""
        pending = self.pending.get(message_key(edited.thread, edited.id))
        if pending is None or pending.begun or pending.started is not None:
            return False
        pending.edits += 1
        try:
            await append(Received.of(replace(pending.incoming, text=edited.text, quoted=edited.quoted)))
        finally:
            pending.edits -= 1
        return True

    def forget_texts(self, thread: ThreadId) -> None:
        """Neither show nor log messages of a thread again that have an outcome."""
        kept = [one for one in self.recent if one[1].incoming.thread != thread]
        self.recent = deque(kept, self.recent.maxlen)
        self.unlogged = {seq: one for seq, one in self.unlogged.items() if one[0].incoming.thread != thread}

    def doubt(self, before: str) -> None:
        """Note that messages received before this time may have been posted although no record says so."""
        for pending in self.pending.values():
            pending.received.unsure = pending.received.unsure or pending.received.at < before

    def knows_thread(self, thread: str, before: str = "") -> bool:
        """Return whether a message of the thread waits, or had a turn of late. A kill may leave no more of it.

        With an instant *before*, only messages count that were sent until then.
        """
        had_turn = (pending for _, pending in self.recent if pending.started)
        found = (one.received for one in chain(self.pending.values(), had_turn))
        return any(one.thread_id == thread and (not before or one.sent_at <= before) for one in found)

    def apply(self, record: Record) -> None:
        key = message_key(ThreadId.parse(record.thread_id), record.message_id)
        self.seq, self.applied = max(self.seq, record.seq), max(self.applied, record.seq)
        pending = self.pending.get(key)
        match record:
            case Received():
                self.aliases.update(dict.fromkeys(record.keys[1:], key))
                if pending is None and key not in self.settled:
                    self.pending[key] = PendingMessage(record)
                elif pending is not None and pending.started is None:
                    pending.amend(record)
            case Settled():
                self._settle(key, record)
            case _ if pending is None:
                self._stray(key, record)
            case Started():
                pending.started = record
                pending.asked = max(pending.asked, record.asked, key=len)
            case Intent():
                pending.intent = record
            case Posted():
                pending.platform_id = record.platform_id
                self._mention(record, pending.intent.mentions if pending.intent else ())
            case _:
                assert_never(record)

    def _settle(self, key: str, end: Settled) -> None:
        self.settled[key] = end
        if end.alias:
            self.aliases[message_key(ThreadId.parse(end.thread_id), end.alias)] = key
        if end.outcome == "undelivered" and not end.by:
            self.undelivered.setdefault(end.thread_id, {})[key] = end
        if (pending := self.pending.pop(key, None)) is not None:
            self.recent.append((key, pending))
            self.unlogged[end.seq] = pending, end
        if end.logged > self._logged:
            self._logged = end.logged
            self.unlogged = {seq: entry for seq, entry in self.unlogged.items() if seq > self._logged}

    def _mention(self, posted: Posted, mentions: Sequence[str]) -> None:
        """Note which undelivered replies a post has mentioned."""
        unmentioned = self.undelivered.get(posted.thread_id, {})
        for key in mentions:
            if (end := unmentioned.pop(key, None)) is not None and key in self.settled:
                self.settled[key] = replace(end, by=posted.message_id)

    def _stray(self, key: str, record: Started | Intent | Posted) -> None:
        """Add a message whose ``received`` record was damaged. It still needs an outcome."""
        if key not in self.settled:
            ids = record.thread_id, record.message_id
            lost = Received(thread_id=ids[0], message_id=ids[1], author=Author(""), text="", at=record.at)
            self.pending[key] = PendingMessage(lost)
            self.apply(record)

    def records(self) -> Iterator[Record]:
        """Return the fewest records that fold to this ledger. What a start may show again keeps all records."""
        for pending in self.pending.values():
            yield from pending.records()
        unmentioned = {key: end for ends in self.undelivered.values() for key, end in ends.items()}
        recent = {
            **dict(self.recent),
            # A copy, because the event loop removes entries while this runs in the writer's thread.
            **{pending.incoming.key: pending for pending, _ in list(self.unlogged.values())},
        }
        # Outcomes that no post has mentioned come last. Otherwise an older post would seem to mention them.
        for key, end in {
            **{k: e for k, e in self.settled.items() if k not in unmentioned},
            **unmentioned,
        }.items():
            if key in recent:
                yield from recent[key].records()
            yield end if key in recent else replace(end, shown="")
