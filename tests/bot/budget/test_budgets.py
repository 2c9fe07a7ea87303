from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.budget import budgets as budgets_module
from bot.budget.accounts import Accounts
from bot.budget.budgets import (
    KEPT_DAYS,
    Budgets,
    Call,
    Commit,
    Grant,
    OverLimit,
    Policy,
    Record,
    Reserve,
    Shortage,
    Total,
    Warned,
    parse_grant,
    record_adapter,
)
from bot.budget.money import micros
from bot.config.settings import Budget, BudgetLimits
from bot.ports.model import Usage
from threads.scheduled_messages import scheduled_id
from threads.store.checksummed_lines import encode, read_line, scan

CALL = Call("t1", "ann", "m1", "fake/one", "2026-11-21")


def policy(*, hard: bool = True, **limits: int) -> Policy:
    return Policy(hard, 0.8, limits)


def spent(amount: int, call: Call = CALL) -> Budgets:
    budgets = Budgets()
    budgets.apply(Commit(seq=1, call=call, usage=Usage(), micros=amount))
    return budgets


def scopes(budgets: Budgets, most: int, rules: Policy, call: Call = CALL) -> list[str]:
    return [shortage.key[0] for shortage in budgets.shortages(call, most, rules)]


@pytest.mark.parametrize(
    ("used", "most", "limits", "named"),
    [
        pytest.param(60, 40, {"thread": 100}, [], id="a call that just fits goes"),
        pytest.param(60, 41, {"thread": 100}, ["thread"], id="one more micro-dollar does not"),
        pytest.param(500, 0, {"thread": 100, "day": 0}, [], id="what costs nothing is never refused"),
        pytest.param(0, 1, {"day": 0}, ["day"], id="a limit of nothing refuses whatever costs"),
    ],
)
def test_a_call_goes_as_long_as_no_limit_stands_in_its_way(used, most, limits, named):
    assert scopes(spent(used), most, policy(**limits)) == named


def test_every_limit_that_stands_in_the_way_is_named():
    limits = policy(turn=1, thread=100, user_day=1, day=1, month=1)
    assert scopes(spent(60), 40, limits) == ["turn", "user_day", "day", "month"]


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (Call("t1", "bob", "m2", "x/y", "2026-11-22"), {"thread", "month"}),
        (Call("t2", "ann", "m2", "x/y", "2026-11-21"), {"user_day", "day", "month"}),
        (Call("t2", "bob", "m2", "x/y", "2026-11-21"), {"day", "month"}),
        (Call("t2", "bob", "m2", "x/y", "2026-12-01"), set()),
        (Call("t1", "ann", "m1", "x/y", "2026-11-21"), {"turn", "thread", "user_day", "day", "month"}),
    ],
)
def test_a_limit_is_shared_by_what_has_the_same_key(other, shared):
    limits = policy(turn=10, thread=10, user_day=10, day=10, month=10)
    assert set(scopes(spent(10), 1, limits, other)) == shared


def test_a_soft_budget_refuses_nothing_and_says_once_that_a_limit_is_passed():
    budgets, soft = spent(101), policy(hard=False, thread=100)
    assert scopes(budgets, 1000, soft) == []
    assert budgets.due(CALL, soft) == [(("thread", "t1"), "passed")]
    budgets.apply(Warned(seq=2, scope="thread", key="t1", level="passed"))
    assert budgets.due(CALL, soft) == []


def test_a_warning_is_due_at_the_threshold_once_and_again_after_a_grant():
    assert spent(79).due(CALL, policy(thread=100)) == []
    budgets = spent(80)
    assert budgets.due(CALL, policy(thread=100)) == [(("thread", "t1"), "warning")]
    budgets.apply(Warned(seq=2, scope="thread", key="t1", level="warning"))
    assert budgets.due(CALL, policy(thread=100)) == []
    budgets.apply(Grant(seq=3, scope="thread", key="t1", micros=20, by="admin"))
    assert budgets.due(CALL, policy(thread=100)) == []
    budgets.apply(Commit(seq=4, call=CALL, usage=Usage(), micros=16))
    assert budgets.due(CALL, policy(thread=100)) == [(("thread", "t1"), "warning")]


def test_a_grant_raises_one_limit_by_its_amount():
    budgets = spent(100)
    budgets.apply(Grant(seq=2, scope="thread", key="t1", micros=30, by="admin"))
    limits = policy(thread=100, day=1000)
    assert scopes(budgets, 30, limits) == []
    assert scopes(budgets, 31, limits) == ["thread"]


def test_a_record_counts_once_however_often_it_is_read():
    budgets = spent(10)
    budgets.apply(Commit(seq=1, call=CALL, usage=Usage(), micros=10))
    assert budgets.total(("day", "2026-11-21")).spent == 10


def charged(days: int, budgets: Budgets, first: date = date(2026, 12, 1)) -> None:
    """Charge the thread "busy" on so many days, one after the other."""
    for n in range(days):
        day = (first + timedelta(days=n)).isoformat()
        call = Call("busy", "ann", "m2", "x/y", day)
        budgets.apply(Commit(seq=budgets.seq + 1, call=call, usage=Usage(), micros=1))


def test_a_thread_is_forgotten_after_half_a_year_of_silence():
    budgets = spent(10)
    charged(KEPT_DAYS - 1, budgets)
    assert ("thread", "t1") not in budgets.forget()
    charged(1, budgets, date(2027, 12, 1))
    assert budgets.forget()["thread", "t1"].spent == 10
    assert budgets.total(("thread", "t1")).spent == 0
    assert budgets.total(("thread", "busy")).spent == KEPT_DAYS
    assert len([name for scope, name in budgets.totals if scope == "day"]) == KEPT_DAYS


def test_a_clock_that_jumped_makes_no_thread_forgotten():
    budgets = Budgets()
    for seq, day in enumerate(["2026-11-21", "2099-01-01", "1970-01-01"], 1):
        budgets.apply(Commit(seq=seq, call=Call(f"t{seq}", "ann", "m1", "x/y", day), usage=Usage(), micros=1))
    charged(KEPT_DAYS - 3, budgets)
    assert budgets.forget().keys().isdisjoint({("thread", "t1"), ("thread", "t2"), ("thread", "t3")})


def test_a_grant_to_a_silent_thread_is_not_forgotten_before_it_is_used():
    budgets = Budgets()
    charged(KEPT_DAYS, budgets)
    budgets.apply(
        Grant(seq=budgets.seq + 1, scope="thread", key="t9", micros=5, by="admin", at="2027-11-21T")
    )
    budgets.forget()
    assert budgets.total(("thread", "t9")).granted == 5


def test_what_was_charged_since_is_not_dropped():
    budgets = spent(10)
    old = budgets.snapshot().totals
    budgets.apply(Commit(seq=2, call=Call("t1", "ann", "m2", "x/y", "2026-11-21"), usage=Usage(), micros=1))
    budgets.drop(old)
    assert budgets.total(("thread", "t1")).spent == 11
    assert ("turn", "m1") not in budgets.totals


def test_a_snapshot_does_not_change():
    budgets = spent(10)
    budgets.apply(Reserve(seq=2, call=CALL, micros=5))
    before = budgets.snapshot()
    budgets.apply(Commit(seq=3, call=CALL, usage=Usage(), micros=1, reserve=2))
    assert (before.total(("thread", "t1")).used, before.seq, list(before.open)) == (15, 2, [2])


def test_what_is_still_reserved_is_not_forgotten_however_old_it_is():
    budgets = Budgets()
    budgets.apply(Reserve(seq=1, call=Call("t1", "ann", "m1", "x/y", "2026-01-01"), micros=7))
    for day in range(1, 20):
        call = Call("t1", "ann", f"m{day}", "x/y", f"2026-11-{day:02}")
        budgets.apply(Commit(seq=day + 1, call=call, usage=Usage(), micros=1))
    budgets.forget()
    again = fold(budgets.carry())
    assert again.total(("day", "2026-01-01")).reserved == 7
    assert budgets.total(("day", "2026-01-01")).reserved == 7
    assert again.total(("user_day", "2026-11-01 ann")).spent == 0
    assert again.total(("user_day", "2026-11-19 ann")).spent == 1


keys = st.sampled_from(["a", "b"])
made_calls = st.builds(Call, keys, keys, keys, st.just("x/y"), st.sampled_from(["2026-11-21", "2026-12-01"]))
steps = st.lists(
    st.one_of(
        st.builds(Reserve, call=made_calls, micros=st.integers(1, 100)),
        st.builds(
            Commit,
            call=made_calls,
            usage=st.builds(Usage, *[st.integers(0, 9)] * 5),
            micros=st.none() | st.integers(0, 100),
            reserve=st.integers(0, 8),
        ),
        st.builds(
            Grant, scope=st.sampled_from(["thread", "turn"]), key=keys, micros=st.integers(1, 9), by=keys
        ),
        st.builds(Warned, scope=st.just("thread"), key=keys, level=st.sampled_from(["warning", "passed"])),
    ),
    max_size=12,
)


def fold(records: Iterable[Record]) -> Budgets:
    budgets = Budgets()
    for record in records:
        budgets.apply(record)
    return budgets


@given(steps, st.integers(0, 12), st.integers(1, 20))
def test_what_is_carried_over_adds_up_to_the_same(records, at, rows):
    for seq, record in enumerate(records, 1):
        record.seq = seq
    before = fold(records[:at])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budgets_module, "ROWS", rows)
        carried = list(before.carry())
    whole = fold(records)
    again = fold([*carried, *records])
    assert again.totals == whole.totals
    assert again.open == whole.open
    assert again.seq == whole.seq


@given(steps)
def test_a_record_reads_back_from_its_line(records):
    lines = b"".join(encode(record_adapter(), record) for record in [*records, *fold(records).carry()])
    read = [read_line(record_adapter(), line) for line in scan(lines).good]
    assert read == [*records, *fold(records).carry()]


@given(st.floats(0, 1_000_000))
def test_costs_are_rounded_up_and_never_by_more_than_a_micro_dollar(usd):
    assert -1e-6 <= micros(usd) - usd * 1_000_000 <= 1 + 1e-6


def test_no_float_makes_a_price_dearer_than_it_is():
    assert [micros(usd) for usd in (0.00163, 0.1 + 0.2, 1e-9, 0.0, -1.0)] == [1630, 300_000, 1, 0, 0]


@pytest.mark.parametrize(
    ("words", "amount"),
    [("1.00", 1_000_000), ("$2", 2_000_000), (" 0.5 ", 500_000), ("1000", 1_000_000_000), ("0.000001", 1)],
)
def test_an_amount_is_read_as_dollars(words, amount):
    assert parse_grant(words) == amount


@pytest.mark.parametrize(
    "words",
    [
        *["0", "0.00", "-1", "1000.01", "1001", "99999", "1e3", "inf", "nan", "1,000", "1.", ".5", "١"],
        "",
        "1 2",
        "a lot",
    ],
)
def test_an_amount_that_is_none_is_not_guessed(words):
    assert parse_grant(words) is None


def test_limits_come_from_the_settings_and_a_missing_one_is_none():
    rules = Policy.of(Budget(mode="hard", limit_usd=BudgetLimits(turn=0.1, thread=None, month=3)))
    assert rules.limits == {
        "turn": 100_000,
        "user_day": 10_000_000,
        "schedule_day": 1_000_000,
        "day": 50_000_000,
        "month": 3_000_000,
    }
    none = BudgetLimits(turn=None, thread=None, user_day=None, schedule_day=None, day=None, month=None)
    assert not Policy.of(Budget(limit_usd=none)).binding


@pytest.mark.parametrize("absurd", [-0.01, float("inf"), float("nan"), 1e10, True, "5"])
def test_absurd_limits_are_refused_by_the_settings(absurd):
    with pytest.raises(ValueError, match="turn"):
        Budget.model_validate({"limit_usd": {"turn": absurd}})


def test_a_refusal_says_to_the_operator_what_does_not_fit():
    error = OverLimit(spent(60).shortages(CALL, 50, policy(thread=100)), 50)
    assert error.shortages == (Shortage(("thread", "t1"), limit=100, used=60, missing=10),)
    assert error.scopes == ("thread",)
    assert "0.000060 of 0.000100 USD" in str(error)


SCHEDULED = Call(
    "t1", "ann", f"slack:T1:C1:{scheduled_id('s1', datetime(2026, 11, 21, 11, tzinfo=UTC))}", "x/y", CALL.day
)
SCHEDULES = ("schedule_day", CALL.day)


def test_only_the_turn_of_a_scheduled_message_counts_against_the_schedules():
    assert SCHEDULES in SCHEDULED.keys
    turns = ("slack:T1:C1:1.0", "x", "")
    assert not any(SCHEDULES in Call("t1", "ann", turn, "x/y", CALL.day).keys for turn in turns)
    rules = policy(schedule_day=1_000_000)
    assert scopes(spent(900_000, SCHEDULED), 200_000, rules, SCHEDULED) == ["schedule_day"]
    assert scopes(spent(900_000, SCHEDULED), 200_000, rules) == []


@pytest.mark.parametrize(
    ("amount", "mode", "may"),
    [(999_999, "hard", True), (1_000_000, "hard", False), (2_000_000, "soft", True)],
)
def test_when_the_schedules_have_spent_their_limit_no_message_is_sent_today(amount, mode, may):
    ledger = SimpleNamespace(budgets=spent(amount, SCHEDULED), today=CALL.day)
    assert Accounts(ledger, Policy.of(Budget(mode=mode))).may_schedule() is may


def test_the_spending_of_schedules_is_carried_over_and_forgotten_after_a_while():
    again = fold(spent(900_000, SCHEDULED).carry())
    assert again.total(SCHEDULES).spent == 900_000
    charged(11, again)
    again.forget()
    assert again.total(SCHEDULES).spent == 0


SCOPED = Call("t1", "ann", "m1", "fake/one", "2026-11-21", ("slack:T1", "slack:T1:C1"))
CHANNEL_DAY = ("scope_day", "2026-11-21 slack:T1:C1")


def test_a_call_counts_against_the_day_of_each_scope_that_covers_it():
    rules = Policy(True, 0.8, {"day": 9}, {"slack:T1": 5, "slack:T1:C1": 3})
    budgets = spent(3, SCOPED)
    assert [short.key for short in budgets.shortages(SCOPED, 1, rules)] == [CHANNEL_DAY]
    expected = ["scope_day", "scope_day", "day"]
    assert [short.key[0] for short in budgets.shortages(SCOPED, 7, rules)] == expected
    elsewhere = Policy(True, 0.8, {"day": 9}, {"slack:T1": 5})
    assert budgets.shortages(replace(SCOPED, scopes=("slack:T1",)), 2, elsewhere) == []


def test_a_call_of_an_older_ledger_has_no_scopes():
    line = b'{"seq":1,"call":{"thread_id":"t","user":"u","turn":"m","model":"x/y","day":"2026-11-21"},"micros":1,"kind":"reserve"}'
    assert record_adapter().validate_json(line).call.scopes == ()


def test_the_day_of_a_scope_is_carried_over_and_forgotten_as_that_of_a_person():
    budgets = spent(3, SCOPED)
    head = Budgets()
    for line in budgets.carry():
        head.apply(line)
    assert head.total(CHANNEL_DAY).spent == 3
    for day in range(1, 12):
        later = replace(SCOPED, day=f"2026-12-{day:02}", turn=f"m{day}")
        budgets.apply(Commit(seq=budgets.seq + 1, call=later, usage=Usage(), micros=1))
    budgets.forget()
    assert budgets.total(CHANNEL_DAY) == Total()
    assert budgets.total(("scope_day", "2026-12-11 slack:T1:C1")).spent == 1


def test_a_scope_that_is_the_only_limit_makes_a_budget_binding():
    assert Policy(True, 0.8, {}, {"user:ann": 5}).binding
    assert Policy.of(Budget(limit_usd=BudgetLimits()), {"user:ann": 0.5}).day_limits == {"user:ann": 500_000}
