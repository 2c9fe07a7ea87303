"""What the audit is told of a running bot: retries and failovers by the work that is watched, errors by the log.

An error that does not end the bot is caught at a boundary, and every boundary logs what it caught: that line is the
audit's too, if it is an error, or a warning with a ``code``. A disk or a network that fails can log the same a
thousand times; of each event `MOST_A_MINUTE` are taken, and the next one says how many there were in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bot.audit import Audit
from bot.budgets import Key, dollars
from bot.observe.logs import Mask, clean
from bot.observe.work import Work
from threads.errors import StoreUnavailable
from threads.model import Answer, Outcome, Turn
from threads.records import Owed

MOST_A_MINUTE = 10
UNPAID = "budget_exceeded"
"""Such a call never went out: a person is asked, and a `grant` tells of it."""

LONGEST = 500
"""Characters of a reason."""

OURS = ("bot.", "threads.", "transports.")
OWN = ("bot.audit", "bot.approvals", "bot.workbench")
"""They log that the audit cannot be written: not a thing to write into it."""


class AuditSink:
    """A `bot.observe.work.Sink`: within a step, a call after one that failed is a retry, or another model's turn."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._failed: dict[int, Work] = {}
        """The call that failed last, by the step that it is of."""

    def began(self, work: Work) -> None:
        if work.kind != "model_call" or work.parent is None:
            return
        failed = self._failed.pop(id(work.parent), None)
        if failed is None:
            return
        details = {"model": work.name, "why": failed.outcome}
        if failed.name == work.name:
            waited = max(0.0, work.began - failed.began - failed.seconds)
            details |= {"attempt": str(work.attempt), "waited_s": f"{waited:.1f}"}
        else:
            details["from"] = failed.name
        self._audit.tell("retry" if failed.name == work.name else "failover", details, **_ids(work))

    def ended(self, work: Work) -> None:
        if (
            work.kind == "model_call"
            and work.parent is not None
            and work.outcome not in ("ok", work.cut, UNPAID)
        ):
            self._failed[id(work.parent)] = work
        elif work.kind == "step":
            asked = self._failed.pop(id(work), None) is not None or work.switched_from in work.asked
            if work.switched_from and not asked:
                details = {"model": work.name, "from": work.switched_from, "why": "passed over"}
                self._audit.tell("failover", details, **_ids(work))

    def settled(self, transport: str, outcome: Outcome, seconds: float | None) -> None:
        """Say nothing: that is what the log of the thread is for."""


def _ids(work: Work | None) -> Mapping[str, str]:
    while work is not None and work.parent is not None:
        work = work.parent
    return work.ids if work is not None else {}


@dataclass(slots=True)
class _Minute:
    began: float
    taken: int = 0
    passed_over: int = 0


class AuditLog(logging.Handler):
    """Takes what is logged of suppressed errors into the audit."""

    def __init__(self, audit: Audit, mask: Mask, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._audit, self._mask, self._clock = audit, mask, clock
        self._minutes: dict[str, _Minute] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether it is a suppressed error of ours."""
        wanted = record.levelno >= logging.ERROR or hasattr(record, "code")
        return wanted and record.name.startswith(OURS) and record.name not in OWN

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tell(record)
        except Exception:  # noqa: BLE001 - the boundary of logging: a log call never fails its caller
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the inherited one prints it unmasked
        """Leave it: the line itself is in the log."""

    def _tell(self, record: logging.LogRecord) -> None:
        said = vars(clean(record, self._mask))
        more = self._more(said["event"])
        if more is None:
            return
        details = {"event": said["event"], "reason": said["text"][:LONGEST]}
        if record.exc_info and (error := record.exc_info[1]):
            details["error"] = self._mask(f"{type(error).__name__}: {error}")[:LONGEST]
            if details["reason"] == details["error"]:
                details["reason"] = ""
        if "code" in said:
            details["code"] = str(said["code"])
        if more:
            details["more_before"] = str(more)
        ids = {
            name: str(said[name]) for name in ("thread_id", "message_id", "correlation_id") if name in said
        }
        self._audit.tell("error", {name: value for name, value in details.items() if value}, **ids)

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


@contextmanager
def logged(audit: Audit, mask: Mask) -> Iterator[None]:
    """Take what is logged in the block, in whatever thread."""
    taking = AuditLog(audit, mask)
    logging.getLogger().addHandler(taking)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(taking)


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


def stopped(audit: Audit, by: Owed, running: int, waiting: int) -> None:
    """Note that a person stopped a thread, or a channel."""
    asked = by.incoming
    details = {"running": str(running), "waiting": str(waiting)}
    audit.tell("cancel", details, thread_id=str(asked.thread), message_id=asked.id, author=asked.author.id)
