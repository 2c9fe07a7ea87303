"""Reads the audit and describes its records for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from pydantic import JsonValue

from bot.admin.reports.line_reader import Damage, records
from bot.admin.reports.thread import in_json
from bot.observe.audit import AuditRecord, record_adapter
from bot.store.reader import Reader, Wait


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records to read. ``since`` is a day or an instant (UTC, ISO 8601). An empty field matches everything."""

    since: str = ""
    kinds: Sequence[str] = ()
    threads: Sequence[str] = ()
    about: Sequence[str] = ()
    """Message ids, or references of turns."""

    def matches(self, record: AuditRecord) -> bool:
        return (
            record.at >= self.since
            and (not self.kinds or record.kind in self.kinds)
            and (not self.threads or record.thread_id in self.threads)
            and (not self.about or bool({record.message_id, record.correlation_id} & {*self.about}))
        )


def read_audit(
    reader: Reader, criteria: Filter, damage: Damage, wait: Wait | None = None
) -> Iterator[AuditRecord]:
    """Yield the matching records in order. Raises `threads.errors.NewerSchema` and OSError.

    With *wait* it never ends: whenever there is no more, it waits and looks again.
    """
    words = [in_json(word) for word in criteria.about or criteria.threads]
    lines = reader.audit(criteria.since, words, wait)
    return filter(criteria.matches, records(lines, record_adapter(), damage, words))


INTERNAL = frozenset({"call"})
"""Details that mean nothing to a person: ids that link a question to its answer."""


def describe(record: AuditRecord) -> str:
    """Return the details of a record as text: a summary, then the other details by name."""
    rest = {name: value for name, value in record.details.items() if value not in ("", None)}
    first = ""
    match record.kind, rest:
        case "retry", {"attempt": attempt, "wait_s": wait_s}:
            first = f"{_what(rest)}; try {attempt} in {wait_s} s"
        case "tool", {"tool": tool}:
            first = f"{tool} failed: {_what(rest, 'error', 'reason').removeprefix(f'{tool}: ')}"
        case (("error" | "failover"), {"event": _}):
            first = _what(rest)
        case "approval", {"tool": tool, "verdict": verdict}:
            first = f"{verdict}: {tool} {rest.get('about', '')}".rstrip()
        case "decision", {"about": about, "verdict": verdict}:
            first = f"{verdict}: {about}"
        case _:
            pass
    covered = SUMMARIZED.get(record.kind, INTERNAL) if first else INTERNAL
    return ", ".join(
        [*([first] if first else []), *(f"{n} {v}" for n, v in rest.items() if n not in covered)]
    )


def _what(details: Mapping[str, JsonValue], *names: str) -> str:
    return ": ".join(str(details[name]) for name in names or ("event", "error", "reason") if name in details)


SUMMARIZED = {
    "retry": INTERNAL | {"event", "error", "reason", "attempt", "wait_s", "model"},
    "failover": INTERNAL | {"event", "error", "reason", "model", "from_model"},
    "tool": INTERNAL | {"event", "error", "reason", "tool"},
    "error": INTERNAL | {"event", "error", "reason"},
    "approval": INTERNAL | {"tool", "verdict", "about"},
    "decision": frozenset({"verdict", "about"}),
}
"""Details that the summary already contains, by kind."""


def as_value(record: AuditRecord) -> dict[str, object]:
    value = asdict(record)
    del value["v"]
    return value
