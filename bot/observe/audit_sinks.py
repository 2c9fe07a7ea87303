"""What the audit is told of a running bot: what went wrong, what is tried again, what a person stopped or granted.

An error that does not end the bot is caught at a boundary, and every boundary logs what it caught. That line is the
audit's too if it is an error, or has a ``code``:

| a line                                     | kind     | how many                              |
|--------------------------------------------|----------|---------------------------------------|
| with the fields of `retry_fields`          | retry    | every one                             |
| ``model.failover``, ``model.passed_over``  | failover | every one                             |
| ``tool.failed``                            | tool     | every one                             |
| any other                                  | error    | `MOST_A_MINUTE` of each event         |

A disk or a network that fails can log the same error a thousand times: the next one that is taken says how many there
were in between. Retries need no such bound, since each of them waits or is one of a few. Signs of life (typing,
reactions, an answer that grows) are not counted as retries: they are paced, and the next one takes the place of one
that failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.budget.budgets import Key, dollars
from bot.observe.audit import Audit, AuditKind
from bot.observe.logs import Mask, clean
from threads.errors import StoreUnavailable
from threads.journal.records import PendingMessage
from threads.model import Answer, Turn

MOST_A_MINUTE = 10
LONGEST = 500
"""Characters of a reason."""

KINDS: Mapping[str, AuditKind] = {
    "model.failover": "failover",
    "model.passed_over": "failover",
    "tool.failed": "tool",
}
DETAILS = ("code", "model", "from_model", "tool", "call", "server", "transport", "attempt", "wait_s")
"""Fields of a line that the audit takes along."""

OURS = ("bot", "threads", "transports")
OWN = ("bot.observe.audit", "bot.tools.approvals", "bot.wiring.tool_set")
"""They log that the audit cannot be written: not a thing to write into it."""


@dataclass(slots=True)
class _Minute:
    began: float
    taken: int = 0
    passed_over: int = 0


class AuditLog(logging.Handler):
    """Takes what is logged of suppressed errors into the audit."""

    def __init__(self, audit: Audit, mask: Mask, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.INFO)
        self._audit, self._mask, self._clock = audit, mask, clock
        self._minutes: dict[str, _Minute] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether it is a suppressed error, a retry, or the like."""
        return (record.levelno >= logging.ERROR or hasattr(record, "code")) and record.name not in OWN

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tell(record)
        except Exception:  # noqa: BLE001 - the boundary of logging: a log call never fails its caller
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the inherited one prints it unmasked
        """Leave it: the line itself is in the log."""

    def _tell(self, record: logging.LogRecord) -> None:
        said = vars(clean(record, self._mask))
        kind = "retry" if "wait_s" in said else KINDS.get(said["event"], "error")
        more = self._more(said["event"]) if kind == "error" else 0
        if more is None:
            return
        details = {"event": said["event"], "reason": said["text"][:LONGEST]}
        if record.exc_info and (error := record.exc_info[1]):
            details["error"] = self._mask(f"{type(error).__name__}: {error}")[:LONGEST]
            if details["reason"] == details["error"]:
                details["reason"] = ""
        details |= {name: str(said[name]) for name in DETAILS if name in said}
        if more:
            details["more_before"] = str(more)
        ids = {
            name: str(said[name]) for name in ("thread_id", "message_id", "correlation_id") if name in said
        }
        self._audit.tell(kind, {name: value for name, value in details.items() if value}, **ids)

    def _more(self, event: str) -> int | None:
        """Return how many of the event were passed over before this one; None when this one is."""
        minute, now = self._minutes.get(event), self._clock()
        if minute is None or now - minute.began >= 60:
            passed_over = minute.passed_over if minute else 0
            self._minutes[event] = _Minute(now, 1)
            return passed_over
        if minute.taken >= MOST_A_MINUTE:
            minute.passed_over += 1
            return None
        minute.taken += 1
        return 0


@asynccontextmanager
async def logged(audit: Audit, mask: Mask) -> AsyncIterator[None]:
    """Take what our code logs in the block, in whatever thread, and however little of it goes into the log."""
    taking, loggers = AuditLog(audit, mask), [logging.getLogger(name) for name in OURS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(taking)
        logger.setLevel(min(taking.level, logger.getEffectiveLevel()))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(taking)
            logger.setLevel(level)


def granted(audit: Audit, turn: Turn, key: Key, amount: int, by: str) -> None:
    """Note that a person raised a limit."""
    scope, name = key
    details = {"scope": scope, "key": name, "usd": f"{dollars(amount):.6f}"}
    audit.tell("grant", details, thread_id=str(turn.incoming.thread), message_id=turn.incoming.id, author=by)


async def decided(audit: Audit, turn: Turn, about: Mapping[str, str], answer: Answer) -> None:
    """Note a person's yes or no about the model or the money of a turn, on disk if that takes it."""
    details = {"verdict": "allowed" if answer.approved else "denied", **about}
    if not answer.by:
        details["why"] = "nobody answered in time"
    asked = turn.incoming
    try:
        await audit.note("decision", asked.thread, asked.id, answer.by, details)
    except StoreUnavailable:  # It waits in memory for the disk.
        audit.tell("decision", details, thread_id=str(asked.thread), message_id=asked.id, author=answer.by)


def audit_stop(audit: Audit, by: PendingMessage, running: int, waiting: int) -> None:
    """Note that a person stopped a thread, or a channel."""
    asked = by.incoming
    details = {"running": str(running), "waiting": str(waiting)}
    audit.tell("cancel", details, thread_id=str(asked.thread), message_id=asked.id, author=asked.author.id)
