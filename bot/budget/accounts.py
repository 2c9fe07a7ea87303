"""Who pays: one `Account` per turn, over the ledger that all share.

A call that can cost something is reserved before it goes out and committed after it. A commit never waits: it counts
in memory at once, cancelled or not, and its line follows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Protocol

from bot.budget.budgets import Budgets, Call, Commit, Grant, Key, Level, Pace, Policy, scope_of
from bot.budget.money import dollars, usd
from bot.config.settings import Budget
from bot.ports.model import Usage
from bot.ports.status import Spend
from threads.delivery import retry_until_stored

log = logging.getLogger(__name__)

WHOSE = {
    "turn": "this message",
    "thread": "this thread",
    "user_day": "you today",
    "schedule_day": "scheduled messages today",
    "day": "everyone today",
    "month": "everyone this month",
}


MOST_SCOPES = 50
"""Scopes whose spending is listed."""


class SpendingLedger(Protocol):
    """Counts the reservations and costs of calls. ``budgets`` are the totals as far as they are known here."""

    @property
    def budgets(self) -> Budgets: ...

    @property
    def today(self) -> str:
        """The UTC day that a call which begins now belongs to."""

    async def read(self, keys: Iterable[Key]) -> None:
        """Bring the totals of these keys up to date; raises `StoreUnavailable`."""

    async def reserve(self, call: Call, most: int, policy: Policy, pace: Pace | None = None) -> int:
        """Set aside the *most* that a call can cost, in micro-dollars, and return the ``seq`` of the reservation.

        If the process ends within the call, it is charged for the time that passed, by its *pace*.
        Raises `OverLimit`, and `StoreUnavailable` when a hard budget cannot be stored.
        """

    def put(self, record: Commit) -> object:
        """Count the cost of a call at once, and store it soon."""

    async def warn(self, call: Call, policy: Policy) -> list[tuple[Key, Level]]:
        """Return the limits for which a warning is due; each warning is returned once."""

    def writing(self) -> AbstractAsyncContextManager[object]:
        """Write while the block lasts, and then write the rest."""

    async def append(self, record: Grant) -> None:
        """Return when the grant is durable; raises `StoreUnavailable`."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """The accounts of all turns: the ledger, and the limits of the settings."""

    ledger: SpendingLedger
    policy: Policy

    @classmethod
    def of(
        cls, ledger: SpendingLedger, budget: Budget, day_limits: Mapping[str, float] = MappingProxyType({})
    ) -> Accounts:
        return cls(ledger, Policy.of(budget, day_limits))

    async def open(self, thread_id: str, user: str, turn: str) -> Account:
        """Return the account of one turn, brought up to date. Waits for the store: the turn needs it anyway."""
        await retry_until_stored(partial(self.ledger.read, self._call(thread_id, user, turn).keys))
        return self.account(thread_id, user, turn)

    def account(self, thread_id: str, user: str, turn: str) -> Account:
        """Return the account of one turn; the same *turn* goes on where it stopped, also after a restart."""
        return Account(self.ledger, self.policy, thread_id, user, turn)

    def may_schedule(self) -> bool:
        """Return whether scheduled messages have anything left to spend today; a soft budget refuses nothing."""
        key: Key = ("schedule_day", self.ledger.today)
        limit = self.ledger.budgets.limit(key, self.policy)
        return not self.policy.hard or limit is None or self.ledger.budgets.total(key).used < limit

    async def overview(self, thread_id: str, user: str) -> str:
        """Return for people what this thread, this person and everyone spent, today and this month, and the limits.

        Raises `StoreUnavailable`.
        """
        keys = self._call(thread_id, user, "").keys[1:]
        await self.ledger.read(keys)
        budgets = self.ledger.budgets
        return "\n".join(_spent(budgets, self.policy, key) + _cached(budgets, key) for key in keys)

    def _call(self, thread_id: str, user: str, turn: str) -> Call:
        return Call(thread_id, user, turn, "", self.ledger.today, tuple(self.policy.day_limits))

    def spend(self) -> list[Spend]:
        return spent_on(self.ledger.today, self.ledger.budgets, self.policy)


def spent_on(day: str, budgets: Budgets, policy: Policy) -> list[Spend]:
    """Return what everyone spent on a day (UTC, ISO 8601) and in its month, and scheduled messages on that day.

    For each scope with a limit of its own it follows what was spent there. It is named by the scope.
    """

    def spend(key: Key, name: str) -> Spend:
        total, limit = budgets.total(key), budgets.limit(key, policy)
        most = None if limit is None else dollars(limit)
        return Spend(name, dollars(total.spent), dollars(total.reserved), most)

    keys: tuple[Key, ...] = (("day", day), ("month", day[:7]), ("schedule_day", day))
    own = islice(policy.day_limits, MOST_SCOPES)
    return [
        *(spend(key, key[0]) for key in keys),
        *(spend(("scope_day", f"{day} {name}"), name) for name in own),
    ]


@dataclass(frozen=True, slots=True)
class ReservedCall:
    """A call that may go out; ``reserve`` is the seq of its reservation, 0 when it needs none."""

    call: Call
    reserve: int = 0


class Account:
    """One turn's account. ``usage`` and ``spent_usd`` are the sum of all its calls, failed ones too.

    A turn that goes on after a restart begins with its totals in the ledger. There, cache writes count as input, and
    calls without a known price as free.
    """

    def __init__(self, ledger: SpendingLedger, policy: Policy, thread_id: str, user: str, turn: str) -> None:
        so_far = ledger.budgets.total(("turn", turn))
        self.policy = policy
        self.usage = Usage(so_far.prompt - so_far.cached, so_far.output, so_far.cached)
        self.spent_usd: float | None = dollars(so_far.spent)
        self._ledger, self._ids = ledger, (thread_id, user, turn)

    async def reserve(self, model: str, most: int, pace: Pace | None = None) -> ReservedCall:
        """Set aside the *most*, in micro-dollars, that a call can cost; one that costs nothing goes at once.

        Raises `OverLimit`, and `StoreUnavailable` when a hard budget cannot be stored.
        """
        call = self._call(model)
        return ReservedCall(call, await self._ledger.reserve(call, most, self.policy, pace) if most else 0)

    def commit(self, opened: ReservedCall, usage: Usage, cost: int | None, outcome: str) -> None:
        """Replace the reservation of a call by its cost in micro-dollars; None is unknown."""
        self.usage += usage
        if self.spent_usd is not None:
            self.spent_usd = None if cost is None else self.spent_usd + dollars(cost)
        self._ledger.put(
            Commit(call=opened.call, usage=usage, micros=cost, outcome=outcome, reserve=opened.reserve)
        )

    async def warnings(self) -> list[str]:
        """Return the warnings that are due; each is returned once, to whichever thread asks first."""
        due = await self._ledger.warn(self._call(), self.policy)
        return [self._warning(key, level) for key, level in due]

    def _call(self, model: str = "") -> Call:
        return Call(*self._ids, model, self._ledger.today, tuple(self.policy.day_limits))

    def _warning(self, key: Key, level: Level) -> str:
        total, limit = self._ledger.budgets.total(key), self._ledger.budgets.limit(key, self.policy) or 0
        fields = {
            "scope": key[0],
            "state": level,
            "spent_usd": dollars(total.spent),
            "limit_usd": dollars(limit),
        }
        log.info("budget.warning: %s", self.spent(key), extra=fields)
        if level == "passed":
            return f"(Over budget: {self.spent(key)}, {usd(total.spent - limit)} more than allowed.)"
        return f"(Budget warning: {self.spent(key)}, {usd(max(0, limit - total.used))} left.)"

    def spent(self, key: Key) -> str:
        """Return in words how much of one limit is spent."""
        return _spent(self._ledger.budgets, self.policy, key)

    async def grant(self, key: Key, amount: int, by: str) -> None:
        """Raise one limit by *amount* micro-dollars, durably; raises `StoreUnavailable`."""
        if amount <= 0:
            raise ValueError("a grant is more than nothing")
        scope, name = key
        await self._ledger.append(Grant(scope=scope, key=name, micros=amount, by=by))


def _spent(budgets: Budgets, policy: Policy, key: Key) -> str:
    total, limit = budgets.total(key), budgets.limit(key, policy)
    of = "" if limit is None else f" of {usd(limit)}"
    waiting = f" and {usd(total.reserved)} set aside" if total.reserved else ""
    return f"{usd(total.spent)}{of} spent{waiting} for {_whose(key)}"


def _whose(key: Key) -> str:
    scope, name = key
    if scope != "scope_day":
        return WHOSE[scope]
    kind, *ids = scope_of(name).split(":")
    covers = "you" if kind == "user" else {1: "this workspace", 2: "this channel"}.get(len(ids), kind)
    return f"{covers} today"


def _cached(budgets: Budgets, key: Key) -> str:
    total = budgets.total(key)
    share = total.cached * 100 // total.prompt if total.prompt else 0
    return f", {share} % of the prompt read from the cache" if share else ""
