"""Feeds the audit from the running bot: errors, retries, stopped threads and raised limits.

Every failure boundary logs what it caught. A line that is an error, or that has a ``code``, also goes to the audit:

| log line                                   | kind     | limit                                 |
|--------------------------------------------|----------|---------------------------------------|
| with the fields of `retry_fields`          | retry    | none                                  |
| ``model.failover``, ``model.passed_over``  | failover | none                                  |
| ``model.key_rotated``                      | rotation | none                                  |
| ``tool.failed``                            | tool     | none                                  |
| ``budget.paused``, ``budget.warning``      | budget   | none                                  |
| ``circuit.opened``, ``circuit.closed``     | circuit  | none                                  |
| ``worker.gone``                            | stop     | none                                  |
| any other                                  | error    | `MOST_A_MINUTE` of each event         |

A failure is recorded with the report of its line: whether the same may succeed later, and the ways to go on.
A failing disk or network can log the same error a thousand times, so the next recorded line says how many were
skipped. Retries need no limit, because each of them waits. Failed live signs (typing, reactions, drafts) are not
retries: the next sign replaces the failed one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from bot.budget.budgets import Key
from bot.budget.money import dollars
from bot.observe.audit import Audit, AuditKind
from bot.observe.logs import Mask, fields_of, named
from threads.errors import StoreUnavailable
from threads.journal.records import PendingMessage
from threads.model import Answer, Turn

MOST_A_MINUTE = 10
LONGEST = 500
"""Characters of a reason."""

KINDS: Mapping[str, AuditKind] = {
    "model.failover": "failover",
    "model.passed_over": "failover",
    "model.key_rotated": "rotation",
    "tool.failed": "tool",
    "budget.paused": "budget",
    "budget.warning": "budget",
    "circuit.opened": "circuit",
    "circuit.closed": "circuit",
    "worker.gone": "stop",
}
DETAILS = (
    "code", "provider", "model", "from_model", "key", "from_key", "tool", "call", "server", "transport",
    "worker", "attempt", "wait_s", "duration_ms", "scope", "state", "spent_usd", "limit_usd", "needed_usd",
)  # fmt: skip
"""Fields of a log line that the audit copies."""

REPORTED = ("type", "recoverable", "suggestion", "ways", "context")
"""Parts of the report of a failure that no other field of a record has."""

OURS = ("bot", "threads", "transports")
OWN = ("bot.observe.audit", "bot.tools.approvals", "bot.wiring.tool_set")
"""They log that the audit cannot be written, so their lines are left out."""


@dataclass(slots=True)
class _Minute:
    began: float
    recorded: int = 0
    skipped: int = 0


class AuditLog(logging.Handler):
    """Copies log lines about suppressed errors into the audit."""

    def __init__(self, audit: Audit, mask: Mask, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.INFO)
        self._audit, self._mask, self._clock = audit, mask, clock
        self._minutes: dict[str, _Minute] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line belongs into the audit."""
        fails = record.levelno >= logging.ERROR or hasattr(record, "code")
        return (fails or named(str(record.msg))[0] in KINDS) and record.name not in OWN

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._record(record)
        except Exception:  # noqa: BLE001 - the boundary of logging: a log call never fails its caller
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the inherited one prints it unmasked
        """Leave it: the line itself is in the log."""

    def _record(self, record: logging.LogRecord) -> None:
        fields = fields_of(record, self._mask)
        event, reason = str(fields["event"]), str(fields["text"])[:LONGEST]
        kind = "retry" if "wait_s" in fields else KINDS.get(event, "error")
        skipped = self._skipped(event) if kind == "error" else 0
        if skipped is None:
            return
        details: dict[str, JsonValue] = {"event": event, "reason": reason}
        if record.exc_info and (error := record.exc_info[1]):
            details["error"] = self._mask(f"{type(error).__name__}: {error}")[:LONGEST]
            if details["reason"] == details["error"]:
                details["reason"] = ""
        details |= {name: str(fields[name]) for name in DETAILS if name in fields}
        if skipped:
            details["more_before"] = str(skipped)
        if isinstance(report := fields.get("report"), dict):  # the rest of it is in the record already
            details["report"] = {name: report[name] for name in REPORTED if report[name]}
        ids = {
            name: str(fields[name])
            for name in ("thread_id", "message_id", "correlation_id")
            if name in fields
        }
        self._audit.tell(kind, {name: value for name, value in details.items() if value}, **ids)

    def _skipped(self, event: str) -> int | None:
        """Return how many of the event were passed over before this one; None when this one is."""
        minute, now = self._minutes.get(event), self._clock()
        if minute is None or now - minute.began >= 60:
            skipped = minute.skipped if minute else 0
            self._minutes[event] = _Minute(now, 1)
            return skipped
        if minute.recorded >= MOST_A_MINUTE:
            minute.skipped += 1
            return None
        minute.recorded += 1
        return 0


@asynccontextmanager
async def audit_logs(audit: Audit, mask: Mask) -> AsyncIterator[None]:
    """Copy our log lines to the audit during this block, from every thread and whatever the log level."""
    handler, loggers = AuditLog(audit, mask), [logging.getLogger(name) for name in OURS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(min(handler.level, logger.getEffectiveLevel()))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)


def record_grant(audit: Audit, turn: Turn, key: Key, amount: int, by: str) -> None:
    """Record that a person raised a limit."""
    scope, name = key
    details = {"scope": scope, "key": name, "usd": f"{dollars(amount):.6f}"}
    audit.tell("grant", details, thread_id=str(turn.incoming.thread), message_id=turn.incoming.id, author=by)


async def record_decision(audit: Audit, turn: Turn, about: Mapping[str, str], answer: Answer) -> None:
    """Record a person's decision about the model or the budget of a turn, durably if the disk works."""
    details = {"verdict": "allowed" if answer.approved else "denied", **about}
    if not answer.by:
        details["why"] = "nobody answered in time"
    incoming = turn.incoming
    try:
        await audit.note("decision", incoming.thread, incoming.id, answer.by, details)
    except StoreUnavailable:  # it waits in memory for the disk
        audit.tell(
            "decision", details, thread_id=str(incoming.thread), message_id=incoming.id, author=answer.by
        )


def record_stop(audit: Audit, by: PendingMessage, running: int, waiting: int) -> None:
    """Record that a person stopped a thread or a channel."""
    incoming = by.incoming
    details = {"running": str(running), "waiting": str(waiting)}
    audit.tell(
        "cancel", details, thread_id=str(incoming.thread), message_id=incoming.id, author=incoming.author.id
    )
