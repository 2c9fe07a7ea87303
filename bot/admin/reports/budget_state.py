"""The totals of the ledger, and the calls of one turn."""

from __future__ import annotations

from collections.abc import Iterator

from bot.admin.reports.line_reader import Damage, records
from bot.admin.reports.thread import in_json
from bot.budget.budgets import Budgets, Commit, Reserve, Total, record_adapter
from bot.store.reader import Reader


def budgets(reader: Reader) -> Budgets:
    """Return all totals. Raises `threads.errors.NewerSchema` and OSError."""
    totals = Budgets()
    for scope, key, *amounts in reader.accounts():
        totals.totals[scope, key] = Total(*amounts)  # type: ignore[index, arg-type]  # as the ledger has them
    return totals


def calls_of(reader: Reader, turn: str, since: str) -> Iterator[Commit | Reserve]:
    """Return the model calls of one turn that began on the day *since* or later; a call never ended is a `Reserve`.

    Raises as `budgets`.
    """
    open_, words = dict[int, Reserve](), (in_json(turn),)
    for part in reader.spending(since[:7], words):
        for record in records(part, record_adapter(), Damage(), words):
            match record:
                case Reserve() if record.call.turn == turn:
                    open_[record.seq] = record
                case Commit() if record.call.turn == turn:
                    open_.pop(record.reserve, None)
                    yield record
                case _:
                    pass
    yield from open_.values()
