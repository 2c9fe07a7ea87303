"""The totals of the ledger, as the bot would count them at its next start. Nothing is repaired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bot.admin.reports.line_reader import Damage, records
from bot.admin.reports.thread import in_json
from bot.budget.budgets import Budgets, Commit, Record, Reserve, record_adapter
from bot.budget.ledger import Part, names_in, parts, since_carried


def budgets(data: Path) -> Budgets:
    """Return all totals. Raises `threads.errors.NewerSchema` and OSError."""
    folder, totals = data / "usage", Budgets()

    def read(part: Part) -> list[Record]:
        return [*records(folder / part.name, record_adapter(), Damage())]

    for record in since_carried(parts(names_in(folder)), read):
        totals.apply(record)
    return totals


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
