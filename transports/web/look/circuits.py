"""When the circuits of models were open, from the audit; pure.

Each worker has a circuit of its own for each model.

| circuit | records                                                | then it is                                      |
|---------|--------------------------------------------------------|-------------------------------------------------|
| closed  | ``circuit.opened``                                     | open                                            |
| open    | ``circuit.closed``                                     | closed                                          |
| open    | ``start`` or ``stop`` of its worker, ``worker.gone``   | closed: it ended with its process               |
| ended   | ``circuit.opened``                                     | open again                                      |
| ended   | ``circuit.closed``                                     | closed only now: the worker lived               |

A ``start`` without a worker is that of the only process, and ends all openings. Records of earlier versions name no
worker: these count as one, which ends with the next start of any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bot.observe.audit import AuditKind, AuditRecord

KINDS: tuple[AuditKind, ...] = ("circuit", "start", "stop")
"""The records that tell of circuits."""


@dataclass(slots=True)
class Opening:
    """One time in which a worker stopped its calls to a model. ``ended_at`` is blank while it does."""

    title: str
    began_at: str
    why: str
    worker: str = ""
    ended_at: str = ""

    def seconds(self, now: datetime) -> float:
        began, end = self.span(now)
        return (end - began).total_seconds()

    def span(self, now: datetime) -> tuple[datetime, datetime]:
        """Return when it began and when it ended, *now* if it has not."""
        end = datetime.fromisoformat(self.ended_at) if self.ended_at else now
        return datetime.fromisoformat(self.began_at), end


def openings(records: Iterable[AuditRecord]) -> list[Opening]:
    """Return all openings, oldest first. Records of other kinds are passed over."""
    found, latest = list[Opening](), dict[tuple[str, str], Opening]()
    for record in records:
        circuit = record.worker, _title(record)
        before = latest.get(circuit)
        match record.kind, record.details.get("event"):
            case "start" | "stop", _:
                for opening in latest.values():
                    if _ends(record, opening.worker):
                        opening.ended_at = opening.ended_at or record.at
            case "circuit", "circuit.closed" if before:
                latest.pop(circuit).ended_at = record.at
            case "circuit", "circuit.opened" if before is None or before.ended_at:
                reason = str(record.details.get("reason", "")).removeprefix(f"{circuit[1]}: ")
                latest[circuit] = Opening(circuit[1], record.at, reason, record.worker)
                found.append(latest[circuit])
            case _:
                pass
    return found


def _ends(record: AuditRecord, worker: str) -> bool:
    """Return whether a start or a stop shows that the process of *worker* has ended."""
    if record.kind == "start":
        return not record.worker or worker in ("", record.worker)
    return worker == record.details.get("worker", record.worker)


def minutes_open(found: Iterable[Opening], now: datetime) -> Mapping[str, Mapping[str, float]]:
    """Return how many minutes of each UTC day each circuit was open, at one worker or more, by title and day."""
    minutes: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    counted = dict[str, datetime]()
    for opening in sorted(found, key=lambda one: one.began_at):
        began, end = opening.span(now)
        began = max(began, counted.get(opening.title, began))
        for day, more in _minutes_by_day(began, end):
            minutes[opening.title][day] += more
        counted[opening.title] = max(began, end)
    return minutes


def _minutes_by_day(at: datetime, end: datetime) -> Iterator[tuple[str, float]]:
    """Yield how much of each UTC day lies between two times."""
    while at < end:
        midnight = datetime.combine(at.date() + timedelta(days=1), datetime.min.time(), UTC)
        yield at.date().isoformat(), (min(midnight, end) - at).total_seconds() / 60
        at = midnight


def _title(record: AuditRecord) -> str:
    """Return the name of a circuit, as `bot.ports.status.CircuitStatus.title`."""
    model, key = record.details.get("model", ""), record.details.get("key", "")
    return f"{model}, key {key}" if key else f"{model}"
