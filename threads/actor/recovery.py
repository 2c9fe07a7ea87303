"""What a start owes: the journal's messages without an outcome, sorted by what to do with each.

its transport is not served now      -> it waits for a start that serves it
intent on disk                       -> finish it, however old: its post may be out already
younger than the limit               -> serve it, in the order of receipt
a person is still asked about it     -> serve it: the question is asked again, and no restart meanwhile is its fault
older, or resuming is switched off   -> one honest note for all such messages of a thread
its text lost to a damaged line      -> an honest note

A turn that was under way counts from the start of its attempt, and may be older by as long as a turn may take: the
bot was up then. What was said behind such a turn goes on with it: the turn may have read it already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from threads.journal.records import PendingMessage
from threads.model import ThreadId


@dataclass(frozen=True, slots=True)
class Plan:
    """``serve`` is in the order of receipt; ``stale`` and ``cut`` list a thread's messages that get a note together.

    The turns of those that were ``cut`` had begun; those ``elsewhere`` came by a transport that is not served now.
    """

    serve: list[PendingMessage] = field(default_factory=list)
    damaged: list[PendingMessage] = field(default_factory=list)
    stale: dict[ThreadId, list[PendingMessage]] = field(default_factory=dict)
    cut: dict[ThreadId, list[PendingMessage]] = field(default_factory=dict)
    elsewhere: list[PendingMessage] = field(default_factory=list)


def plan(
    messages: Iterable[PendingMessage],
    now: datetime,
    *,
    max_age_s: float,
    resume: bool,
    turn_s: float = 0.0,
    asked: Callable[[PendingMessage], bool] = lambda _: False,
    served: Callable[[str], bool] = lambda _: True,
) -> Plan:
    """Return what to do with pending messages of another process. A turn may take *turn_s*.

    Of a turn that a person is asked about, the attempts are counted anew.
    """
    found = Plan()
    oldest = (now - timedelta(seconds=min(max_age_s, 1e9))).isoformat(timespec="milliseconds")
    oldest_begun = (now - timedelta(seconds=min(max_age_s + turn_s, 1e9))).isoformat(timespec="milliseconds")
    going_on: set[ThreadId] = set()
    for pending in messages:
        thread, received = pending.incoming.thread, pending.received
        if not served(thread.transport):
            found.elsewhere.append(pending)
        elif pending.intent is not None:
            found.serve.append(pending)
        elif pending.damaged:
            found.damaged.append(pending)
        elif pending.started and resume and ((waits := asked(pending)) or pending.started.at >= oldest_begun):
            if waits:  # whatever ended the process: not this turn, time and again
                pending.started = replace(pending.started, attempt=1)
            found.serve.append(pending)
            going_on.add(thread)
        elif pending.started:
            found.cut.setdefault(thread, []).append(pending)
        elif resume and (received.at >= oldest or thread in going_on) and not received.stale:
            found.serve.append(pending)
        else:
            found.stale.setdefault(thread, []).append(pending)
    return found
