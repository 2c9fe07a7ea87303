"""When the circuits of models were open, from the audit; pure.

| circuit | records                               | then it is                                         |
|---------|---------------------------------------|----------------------------------------------------|
| closed  | ``circuit.opened``                    | open                                               |
| open    | ``circuit.closed``                    | closed                                             |
| open    | ``start``, ``circuit.opened``         | closed since the start, and open again             |
| open    | ``start``, and nothing more           | closed since the start, as in every new process    |

A ``circuit.closed`` after a ``start`` is that of another worker. With several, the first to close it ends an opening.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bot.observe.audit import AuditKind, AuditRecord

KINDS: tuple[AuditKind, ...] = ("circuit", "start")
"""The records that tell of circuits."""


@dataclass(slots=True)
class Opening:
    """One time in which calls to a model were stopped. ``ended_at`` is blank while they are."""

    title: str
    began_at: str
    why: str
    ended_at: str = ""

    def seconds(self, now: datetime) -> float:
        return (self._end(now) - datetime.fromisoformat(self.began_at)).total_seconds()

    def minutes_by_day(self, now: datetime) -> Mapping[str, float]:
        """Return how much of each UTC day it took, in minutes."""
        found, at, end = dict[str, float](), datetime.fromisoformat(self.began_at), self._end(now)
        while at < end:
            midnight = datetime.combine(at.date() + timedelta(days=1), datetime.min.time(), UTC)
            found[at.date().isoformat()] = (min(midnight, end) - at).total_seconds() / 60
            at = midnight
        return found

    def _end(self, now: datetime) -> datetime:
        return datetime.fromisoformat(self.ended_at) if self.ended_at else now


def openings(records: Iterable[AuditRecord]) -> list[Opening]:
    """Return all openings, oldest first. Records of other kinds are passed over."""
    found, latest = list[Opening](), dict[str, Opening]()
    for record in records:
        title = _title(record)
        before = latest.get(title)
        match record.kind, record.details.get("event"):
            case "start", _:
                for opening in latest.values():
                    opening.ended_at = opening.ended_at or record.at
            case "circuit", "circuit.closed" if before:
                latest.pop(title).ended_at = record.at
            case "circuit", "circuit.opened" if before is None or before.ended_at:
                reason = str(record.details.get("reason", "")).removeprefix(f"{title}: ")
                latest[title] = Opening(title, record.at, reason)
                found.append(latest[title])
            case _:
                pass
    return found


def minutes_open(found: Iterable[Opening], now: datetime) -> Mapping[str, Mapping[str, float]]:
    """Return how many minutes of each UTC day each circuit was open, by title and day."""
    minutes: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for opening in found:
        for day, more in opening.minutes_by_day(now).items():
            minutes[opening.title][day] += more
    return minutes


def _title(record: AuditRecord) -> str:
    """Return the name of a circuit, as `bot.ports.status.CircuitStatus.title`."""
    model, key = record.details.get("model", ""), record.details.get("key", "")
    return f"{model}, key {key}" if key else f"{model}"
