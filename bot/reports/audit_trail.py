"""Reads the audit and describes its records for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from bot.observe.audit import AuditRecord, record_adapter
from bot.reports.line_reader import Damage, records
from bot.reports.thread import in_json
from bot.store.reader import LAST, Reader, Wait


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records to read. ``since`` is a day or an instant (UTC, ISO 8601). An empty field matches everything.

    Records after the day ``until`` are not looked for.
    """

    since: str = ""
    kinds: Sequence[str] = ()
    threads: Sequence[str] = ()
    about: Sequence[str] = ()
    """Message ids, or references of turns."""
    until: str = LAST

    def matches(self, record: AuditRecord) -> bool:
        return (
            record.at >= self.since
            and (not self.kinds or record.kind in self.kinds)
            and (not self.threads or record.thread_id in self.threads)
            and (not self.about or any(self._is_about(record, word) for word in self.about))
        )

    def _is_about(self, record: AuditRecord, word: str) -> bool:
        # A stage of a playbook has the message's id, and its own name after it.
        return word in (record.message_id, record.correlation_id) or record.message_id.startswith(f"{word}.")


def read_audit(
    reader: Reader, criteria: Filter, damage: Damage, wait: Wait | None = None
) -> Iterator[AuditRecord]:
    """Yield the matching records in order. Raises `threads.errors.NewerSchema` and OSError.

    With *wait* it never ends: whenever there is no more, it waits and looks again.
    """
    words = [in_json(word) for word in criteria.about or criteria.threads]
    lines = reader.audit(criteria.since, words, wait, criteria.until)
    return filter(criteria.matches, records(lines, record_adapter(), damage, words))


def describe(record: AuditRecord) -> str:
    """Return the details of a record as text: a summary for the kinds that have one, then the rest by name.

    The id of a call, which links a question to its answer, means nothing to a person and is left out. Of a failure's
    report, the ways to go on are shown. The worker that wrote the record comes last.
    """
    details = {name: value for name, value in record.details.items() if value not in ("", None)}
    report = details.pop("report", None)
    summary, summarized = "", set[str]()
    match record.kind, details:
        case "retry", {"attempt": attempt, "wait_s": wait_s}:
            summary = f"{_cause(details)}; try {attempt} in {wait_s} s"
            summarized = {*CAUSE, "attempt", "wait_s", "model"}
        case "tool", {"tool": tool}:
            summary = f"{tool} failed: {_cause(details, CAUSE[1:]).removeprefix(f'{tool}: ')}"
            summarized = {*CAUSE, "tool"}
        case "error", {"event": _}:
            summary, summarized = _cause(details), {*CAUSE}
        case "failover" | "circuit", {"event": _}:
            summary, summarized = _cause(details), {*CAUSE, "model", "from_model"}
        case "stop", {"event": _}:
            summary, summarized = _cause(details), {*CAUSE, "worker"}
        case "approval", {"tool": tool, "verdict": verdict}:
            summary = f"{verdict}: {tool} {details.get('about', '')}".rstrip()
            summarized = {"tool", "verdict", "about"}
        case "decision", {"about": about, "verdict": verdict}:
            summary, summarized = f"{verdict}: {about}", {"about", "verdict"}
        case _:
            pass
    rest = [f"{name} {value}" for name, value in details.items() if name not in summarized | {"call"}]
    match report:
        case {"ways": [*ways]}:
            rest.append(f"can be helped by: {', '.join(map(str, ways))}")
        case _:
            pass
    if record.worker:
        rest.append(f"on {record.worker}")
    return ", ".join([summary, *rest] if summary else rest)


CAUSE = ("event", "error", "reason")


def _cause(details: Mapping[str, JsonValue], names: Sequence[str] = CAUSE) -> str:
    return ": ".join(str(details[name]) for name in names if name in details)
