"""What the ledger adds up to now, as the bot itself would count it after a start; nothing is mended on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bot.budgets import Budgets, Carried, Commit, Key, Policy, Record, Reserve, dollars, record_adapter
from bot.ledger import names_in, parts
from bot.settings_model import Budget
from bot.telling.lines import Damage, records
from bot.telling.thread import in_json


def budgets(data: Path) -> Budgets:
    """Return all totals. Raises `threads.errors.NewerSchema` and OSError."""
    folder, told = data / "usage", Budgets()
    later: list[Record] = []
    for part in reversed(parts(names_in(folder))):
        read = list(records(folder / part.name, record_adapter(), Damage()))
        head = [record for record in read if isinstance(record, Carried)]
        if head and [line.place for line in head] == list(range(head[0].lines)):
            later = [*read, *later]
            break
        later = [*(record for record in read if not isinstance(record, Carried)), *later]
    for record in later:
        told.apply(record)
    return told


@dataclass(frozen=True, slots=True)
class LimitUsed:
    """What was spent under one limit of the settings, in USD; ``limit`` None is none."""

    scope: str
    spent: float
    reserved: float
    limit: float | None


def limits_used(told: Budgets, budget: Budget, now: datetime) -> list[LimitUsed]:
    """Return what everyone spent today and this month, and scheduled messages today."""
    policy, day = Policy.of(budget), now.date().isoformat()
    keys: tuple[Key, ...] = (("day", day), ("month", day[:7]), ("schedule_day", day))
    found = []
    for key in keys:
        total, limit = told.total(key), told.limit(key, policy)
        most = None if limit is None else dollars(limit)
        found.append(LimitUsed(key[0], dollars(total.spent), dollars(total.reserved), most))
    return found


def calls_of(data: Path, turn: str, since: str) -> Iterator[Commit | Reserve]:
    """Return the model calls of one turn that began on the day *since* or later; a call never ended is a `Reserve`.

    Raises as `budgets`.
    """
    folder, open_ = data / "usage", dict[int, Reserve]()
    for part in parts(names_in(folder)):
        if part.month < since[:7]:
            continue
        for record in records(folder / part.name, record_adapter(), Damage(), (in_json(turn),)):
            match record:
                case Reserve() if record.call.turn == turn:
                    open_[record.seq] = record
                case Commit() if record.call.turn == turn:
                    open_.pop(record.reserve, None)
                    yield record
                case _:
                    pass
    yield from open_.values()
