"""The newest events of this process, for programs outside and for parts of the bot such as its page.

The events come from where they arise: turns, steps, tools and outcomes from `bot.observe.turn_events`; retries,
failovers, failures, budgets and circuits from the audit. A ring holds the newest ones as the fields of their lines.
They are validated only when somebody reads them, so a bot without readers pays for a dict.

| a reader                                      | gets                                                             |
|-----------------------------------------------|------------------------------------------------------------------|
| begins without a number                       | what the ring has                                                |
| begins after a number that the ring goes back to | all later events, none twice                                  |
| begins after one that is older                | a `GapLine` with the count, then what the ring has               |
| begins after one of another process           | a `GapLine` without a count, then what the ring has              |
| falls behind by more than the ring            | a final `GapLine` with the count, and no more                    |

A reader has no buffer of its own but its place in the ring, so a slow one costs nothing and holds up nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
from pydantic import ValidationError

from bot.observe.audit import AuditRecord
from bot.observe.event_lines import EventLine, GapLine, event_adapter
from bot.observe.turn_events import Sink, Work
from threads.model import Outcome

log = logging.getLogger(__name__)

MOST_KEPT = 4096
"""Events that are held: about 2 MB, and some minutes of a busy bot."""

IDS = ("thread_id", "message_id", "correlation_id")

BATCH = 50
"""Events that are made into lines at once: about a millisecond of the event loop."""

LOOK_AGAIN_S = 1.0
"""Seconds after which a reader looks by itself: an event from another thread wakes nobody."""

SEQ_PER_S = 100_000
"""A process begins at its start in Unix seconds times this, so that its numbers are above those of the one before."""


_Event = Mapping[str, Any]
"""The fields of a line, but for the time, which is in Unix seconds."""


@dataclass(frozen=True, slots=True)
class WantedKinds:
    """Which events to read: of these kinds, and of this thread (its id, or the end of it). Empty is all."""

    kinds: frozenset[str] = frozenset()
    thread: str = ""

    def takes(self, kind: str, thread_id: str) -> bool:
        """Return whether an event is wanted."""
        return (not self.kinds or kind in self.kinds) and (
            not self.thread or thread_id == self.thread or thread_id.endswith(f":{self.thread}")
        )


EVERYTHING = WantedKinds()


class EventStream(Sink):
    """A sink of `bot.observe.turn_events` and a listener of the audit. Events may come from any thread."""

    def __init__(self, *, size: int = MOST_KEPT, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._size = clock, size
        self._ring: list[_Event | None] = [None] * size
        self._begin = self._next = int(clock()) * SEQ_PER_S
        self._lock = threading.Lock()
        self._thread = threading.get_ident()
        self._news: anyio.Event | None = None

    def began(self, work: Work) -> None:
        if work.kind != "model_call":
            self._put(work.kind, _ids(work), {"state": "began", **_of_work(work)})

    def ended(self, work: Work) -> None:
        ended = {"state": "ended", "seconds": round(work.seconds, 3), "outcome": work.outcome}
        self._put(work.kind, _ids(work), {**ended, **_of_work(work)})

    def settled(
        self, transport: str, outcome: Outcome, seconds: float | None, ids: Mapping[str, str], /
    ) -> None:
        self._put("settled", ids, {"transport": transport, "outcome": outcome, "seconds": seconds})

    def audited(self, record: AuditRecord) -> None:
        """Take a record of the audit, if it is of a kind that is an event."""
        if (kind := _kind_of(record)) is not None:
            self._put(kind, {name: getattr(record, name) for name in IDS}, _of_audit(record))

    def _put(self, kind: str, ids: Mapping[str, str], fields: Mapping[str, object]) -> None:
        event = {**fields, **{name: ids.get(name, "") for name in IDS}, "kind": kind, "at": self._clock()}
        with self._lock:
            event["seq"] = self._next
            self._ring[self._next % self._size] = event
            self._next += 1
        if self._news is not None and threading.get_ident() == self._thread:
            self._news.set()
            self._news = None

    async def read(
        self, wanted: WantedKinds = EVERYTHING, since: int | None = None, *, follow: bool = True
    ) -> AsyncGenerator[Sequence[EventLine], None]:
        """Yield the lines after the number *since*, some at a time; without *follow* only those that are there."""
        self._thread = threading.get_ident()
        upto = self._oldest - 1 if since is None else since
        if upto + 1 < self._oldest or upto >= self._next:
            lost = self._oldest - 1 - upto if self._begin <= upto < self._oldest else None
            upto = self._oldest - 1
            yield [self._gap(upto, lost)]
        while True:
            if upto + 1 < self._oldest:
                yield [self._gap(self._oldest - 1, self._oldest - 1 - upto, final=True)]
                return
            events = [
                self._ring[seq % self._size] for seq in range(upto + 1, min(self._next, upto + 1 + BATCH))
            ]
            if events:
                upto += len(events)
                yield [
                    _line(one)
                    for one in events
                    if one and wanted.takes(str(one["kind"]), str(one["thread_id"]))
                ]
            elif follow:
                await self._wait()
            else:
                return

    @property
    def _oldest(self) -> int:
        """The number of the oldest event in the ring, or of the next one if there is none."""
        return max(self._begin, self._next - self._size)

    async def _wait(self) -> None:
        self._news = self._news or anyio.Event()
        with anyio.move_on_after(LOOK_AGAIN_S):
            await self._news.wait()

    def _gap(self, seq: int, lost: int | None, *, final: bool = False) -> GapLine:
        return GapLine(seq=seq, at=_instant(self._clock()), lost=lost, final=final)


def _ids(work: Work) -> Mapping[str, str]:
    while work.parent is not None:
        work = work.parent
    return work.ids


def _of_work(work: Work) -> dict[str, object]:
    """Return the fields of a piece of work, which may change or hold others in memory."""
    match work.kind:
        case "turn":
            return {"transport": work.name, "attempt": work.attempt, "steps": work.steps or None}
        case "step":
            return {"step": work.attempt, "model": work.name, "from_model": work.switched_from or None}
        case "tool":
            return {"tool": work.name, "call_id": work.ids.get("call_id", "")}
        case "model_call":
            tokens = {"input_tokens": work.usage.prompt, "output_tokens": work.usage.output}
            return {**tokens, "model": work.name, "attempt": work.attempt, "cost_usd": work.cost_usd}


def _kind_of(record: AuditRecord) -> str | None:
    """Return the kind of event that a record of the audit is, or None."""
    match record.kind:
        case "retry" | "failover" | "budget" | "circuit":
            return record.kind
        case "error" | "tool":
            return "failure"
        case "grant":
            return "budget"
        case "decision" if "scopes" in record.details:
            return "budget" if record.details.get("verdict") == "denied" else None
        case _:
            return None


def _line(event: _Event) -> EventLine:
    """Return the line of an event; a gap of one if it fits none, which is a bug of ours."""
    at = _instant(event["at"])
    try:
        return event_adapter().validate_python({**event, "at": at})
    except ValidationError as error:
        faults = error.errors(include_input=False)
        log.error("events.malformed: %s: %s", event["kind"], faults)  # noqa: TRY400
        return GapLine.model_validate({"seq": event["seq"], "at": at, "lost": 1})


def _of_audit(record: AuditRecord) -> dict[str, object]:
    """Return the fields of a record of the audit, which has no message of an error."""
    details = record.details
    values: dict[str, object] = {
        name: value for name, value in details.items() if name not in ("report", "reason", "error")
    }
    match details.get("report"):
        case dict(report):
            known = {"timestamp": record.at, "correlation_id": record.correlation_id}
            described = {"message": "", **known, "context": {}}
            values["error"] = {**described, "recoverable": False, "suggestion": "", **report}
        case _:
            pass
    match record.kind, str(details.get("event", "")).partition(".")[2]:
        case "budget", "paused":
            values["state"] = "paused"
        case "circuit", state:
            values["state"] = state
        case "grant", _:
            values |= {"state": "granted", "granted_usd": details.get("usd")}
        case "decision", _:
            values |= {"state": "declined", "scope": details.get("scopes")}
        case _:
            pass
    return values


def _instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
