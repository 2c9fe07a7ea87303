"""Whether the bot has everything that was said in a thread is known without a call only where that is sure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.world import T1, T2
from transports.shared.backfill.heard_lines import MOST_LINES, MOST_THREADS, HeardLines
from transports.slack.events.timestamps import STAMPS


def heard(*lines, taken=("2.0",)):
    known = HeardLines(STAMPS)
    for line in lines:
        known.hear(T1, line)
    for line in taken:
        known.take(T1, line)
    return known


@pytest.mark.parametrize(
    ("known", "sure"),
    [
        (heard("2.0"), True),
        (heard("1.0", "2.0"), True),
        (heard("2.0", "3.0"), False),
        (heard("2.0", "3.0", taken=["2.0", "3.0"]), True),
        (heard("3.0", "2.0"), False),
        (heard("10.0", "2.0"), False),
        (heard("3.0", taken=["2.0"]), False),
        (heard(), False),
    ],
)
def test_it_is_sure_only_after_a_heard_line_that_no_untaken_one_follows(known, sure):
    assert known.has_all_after(T1, "2.0") is sure
    assert not known.has_all_after(T2, "2.0")


def test_a_taken_line_that_is_delivered_again_is_not_new():
    known = heard("1.0", "2.0", taken=["1.0", "2.0"])
    known.hear(T1, "2.0")
    assert known.has_all_after(T1, "1.0")


def test_nothing_is_sure_after_the_link_was_down():
    known = heard("2.0")
    known.clear()
    known.take(T1, "2.0")
    assert not known.has_all_after(T1, "2.0")


def test_it_is_bounded_and_what_it_forgot_is_not_sure():
    known = heard("2.0", *(f"3.{n:06}" for n in range(MOST_LINES)))
    assert not known.has_all_after(T1, "2.0")
    known = heard("2.0")
    for n in range(MOST_THREADS):
        known.hear(replace(T1, root=f"{n}.5"), "1.0")
    assert not known.has_all_after(T1, "2.0")
