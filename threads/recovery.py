"""What a start owes: the journal's messages without an outcome, sorted by what to do with each.

intent on disk                       -> finish it, however old: its post may be out already
younger than the limit               -> serve it, in the order of receipt
older, or resuming is switched off   -> one honest note for all such messages of a thread
    its text lost to a damaged line      -> an honest note
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .model import ThreadId
from .records import Ledger, Owed


@dataclass(frozen=True, slots=True)
class Plan:
    """``serve`` is in the order of receipt; ``stale`` lists a thread's messages that get the note together."""

    serve: list[Owed] = field(default_factory=list)
    damaged: list[Owed] = field(default_factory=list)
    stale: dict[ThreadId, list[Owed]] = field(default_factory=dict)


def plan(ledger: Ledger, now: datetime, *, max_age_s: float, resume: bool) -> Plan:
    """Return what to do with every owed message at start-up."""
    found = Plan()
    oldest = (now - timedelta(seconds=min(max_age_s, 1e9))).isoformat(timespec="milliseconds")
    for owed in ledger.owed.values():
        if owed.intent is not None:
            found.serve.append(owed)
        elif owed.damaged:
            found.damaged.append(owed)
        elif resume and owed.received.at >= oldest and not owed.received.stale:
            found.serve.append(owed)
        else:
            found.stale.setdefault(owed.incoming.thread, []).append(owed)
    return found
