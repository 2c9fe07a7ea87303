"""The totals of the ledger, and the calls of one turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bot.budget.budgets import Budgets, Commit, Reserve, Total, record_adapter
from bot.reports.line_reader import Damage, records
from bot.reports.thread import in_json
from bot.store.reader import LAST, Reader


def budgets(reader: Reader) -> Budgets:
    """Return all totals. Raises `threads.errors.NewerSchema` and OSError."""
    # As the ledger has them.
    return Budgets({(scope, key): Total(*amounts) for scope, key, *amounts in reader.accounts()})  # type: ignore[misc, arg-type]


def calls_of(reader: Reader, turn: str, since: str, until: str = LAST) -> Iterator[Commit | Reserve]:
    """Return the model calls of one turn, which is over after the day *until*, from the day *since* on, as `ended`.

    Raises as `budgets`.
    """
    words = (in_json(turn),)
    parts = reader.spending(since[:7], words, until[:7])
    found = (record for part in parts for record in records(part, record_adapter(), Damage(), words))
    return ended(one for one in found if isinstance(one, Reserve | Commit) and one.call.turn == turn)


def ended(calls: Iterable[Commit | Reserve]) -> Iterator[Commit | Reserve]:
    """Yield each call once: as its commit, or at the end as its reservation if it has no commit."""
    open_: dict[int, Reserve] = {}
    for call in calls:
        match call:
            case Reserve():
                open_[call.seq] = call
            case Commit():
                open_.pop(call.reserve, None)
                yield call
    yield from open_.values()
