"""Whether the bot is well, in words and numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.ports.status import CircuitStatus, Spend, Status, TransportStatus
from transports.web.look.summary import headline, troubles
from transports.web.look.turns import DayOfTurns, Turn

WELL = Status(7, "1", "2026-11-20T10:00:00+00:00", 5.0, True, False, "/data", "offline/demo")
DAY = "2026-11-20"


def turns(*outcomes: str, seconds: float = 1.0) -> DayOfTurns:
    day = DayOfTurns()
    for outcome in outcomes:
        day.add(
            Turn(
                "a:b:c:d",
                "m",
                "U1",
                "hello",
                f"{DAY}T10:00:00.000+00:00",
                f"{DAY}T10:00:0{seconds:.3f}+00:00",
                outcome,
            )
        )
    return day


def told(status, today=DayOfTurns(), limits=()):
    found = troubles(status, today, limits, (), DAY)
    return headline(status, found), [one.text for one in found]


OPEN = CircuitStatus("a/b", "open", "overloaded")
GONE = TransportStatus("slack", "disconnected")


@pytest.mark.parametrize(
    ("status", "today", "limits", "grade"),
    [
        (WELL, turns("answered", "refused"), [Spend("day", 0.7, 0.0, 1.0)], "good"),
        (None, turns(), [], "warn"),
        (replace(WELL, stopping=True), turns(), [], "warn"),
        (replace(WELL, ready=False), turns(), [], "bad"),
        (replace(WELL, troubles=("the shell is off",)), turns(), [], "warn"),
        (replace(WELL, transports=(GONE,), troubles=("slack is disconnected",)), turns(), [], "bad"),
        (replace(WELL, circuits=(OPEN,)), turns(), [], "bad"),
        (replace(WELL, pending=1, oldest_pending_s=400.0), turns(), [], "warn"),
        (replace(WELL, worst_lag_s=2.0), turns(), [], "warn"),
        (WELL, turns(*["answered"] * 5, "failed"), [], "warn"),
        (WELL, turns("answered", "answered", "dead_letter"), [], "bad"),
        (WELL, turns(), [Spend("day", 0.5, 0.3, 1.0)], "warn"),
        (WELL, turns(), [Spend("day", 0.5, 0.5, 1.0)], "bad"),
        (WELL, turns(), [Spend("month", 9.0, 0.0, None)], "good"),
    ],
)
def test_how_well_the_bot_is(status, today, limits, grade):
    (_, found), _ = told(status, today, limits)
    assert found == grade


def test_what_is_wrong_comes_before_what_is_only_worth_a_look():
    status = replace(WELL, troubles=("the shell is off",), circuits=(OPEN,))
    _, words = told(status)
    assert words == ["The circuit of a/b is open: overloaded", "the shell is off"]


def test_half_of_the_answers_came_within_one_time_and_nearly_all_within_another():
    day = DayOfTurns()
    day.waited = [float(n) for n in range(100, 0, -1)]
    assert [day.took(0.5), day.took(0.95), DayOfTurns().took(0.5)] == [50.0, 95.0, None]
    assert turns("answered", "failed", seconds=2.5).waited == [2.5]
