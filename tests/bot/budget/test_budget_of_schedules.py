"""Scheduled messages have a budget of their own, beside all others."""

from datetime import UTC, datetime

import pytest

from bot.budget.accounts import Accounts
from bot.budget.budgets import Budgets, Call, Commit, Policy
from bot.config.settings import Budget
from bot.ports.model import Usage
from threads.scheduled_messages import scheduled_id

DAY = "2026-11-22"
TURN = f"slack:T1:C1:{scheduled_id('s1', datetime(2026, 11, 22, 11, tzinfo=UTC))}"


def call(turn: str) -> Call:
    return Call("slack:T1:C1:1.0", "U1", turn, "x/y", DAY)


class FakeLedger:
    today = DAY

    def __init__(self, *spent: tuple[str, int]) -> None:
        self.budgets = Budgets()
        for seq, (turn, amount) in enumerate(spent, 1):
            self.budgets.apply(Commit(seq=seq, call=call(turn), usage=Usage(), micros=amount))


def test_only_the_turn_of_a_scheduled_message_counts_against_it():
    assert ("schedule_day", DAY) in call(TURN).keys
    assert not any(
        scope == "schedule_day" for turn in ("slack:T1:C1:1.0", "x", "") for scope, _ in call(turn).keys
    )


@pytest.mark.parametrize(
    ("spent", "mode", "may"), [(999_999, "hard", True), (1_000_000, "hard", False), (2_000_000, "soft", True)]
)
def test_when_it_is_used_up_nothing_more_is_sent_today(spent, mode, may):
    ledger = FakeLedger((TURN, spent), ("slack:T1:C1:1.0", 5_000_000))
    assert Accounts(ledger, Policy.of(Budget(mode=mode))).may_schedule() is may


def test_a_call_that_does_not_fit_is_refused_and_others_are_not():
    ledger, policy = FakeLedger((TURN, 900_000)), Policy(True, 0.8, {"schedule_day": 1_000_000})
    assert [short.key for short in ledger.budgets.shortages(call(TURN), 200_000, policy)] == [
        ("schedule_day", DAY)
    ]
    assert ledger.budgets.shortages(call("slack:T1:C1:1.0"), 200_000, policy) == []


def test_it_is_carried_over_and_forgotten_after_a_while():
    ledger = FakeLedger((TURN, 900_000))
    again = Budgets()
    for line in ledger.budgets.carry():
        again.apply(line)
    assert again.total(("schedule_day", DAY)).spent == 900_000
    for n in range(1, 12):
        again.apply(
            Commit(seq=100 + n, call=Call("t", "u", "m", "x/y", f"2026-12-{n:02}"), usage=Usage(), micros=1)
        )
    again.forget()
    assert again.total(("schedule_day", DAY)).spent == 0
