"""What a start owes, by how old a message is, whether its turn had begun, and whether a person is still asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.world import message
from threads.actor.recovery import plan
from threads.journal.records import Ledger, Received

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def owing(*, received_s: float, started_s: float | None = None, attempt: int = 1) -> Ledger:
    incoming, ledger = message(1), Ledger()
    received = Received.of(incoming)
    received.at, received.seq = ago(received_s), 1
    ledger.apply(received)
    if started_s is not None:
        begun = next(iter(ledger.owed.values())).start(attempt, "ref")
        begun.at, begun.seq = ago(started_s), 2
        ledger.apply(begun)
    return ledger


@pytest.mark.parametrize(
    ("received_s", "started_s", "asked", "part"),
    [
        (500, None, False, "serve"),
        (700, None, False, "stale"),
        (3000, 500, False, "serve"),  # it waited for long, and the bot was up
        (1400, 1400, False, "serve"),  # a turn may have run for that long
        (1600, 1600, False, "cut"),
        (3000, 3000, True, "serve"),  # a person is still asked
    ],
)
def test_what_a_message_is_owed_depends_on_how_long_nobody_was_at_work_on_it(
    received_s, started_s, asked, part
):
    ledger = owing(received_s=received_s, started_s=started_s)
    found = plan(ledger, NOW, max_age_s=600, resume=True, turn_s=900, asked=lambda _: asked)
    parts = {"serve": len(found.serve), "stale": len(found.stale), "cut": len(found.cut)}
    assert parts == {"serve": 0, "stale": 0, "cut": 0, part: 1}


@pytest.mark.parametrize(("asked", "attempts"), [(True, 1), (False, 3)])
def test_restarts_while_a_person_is_asked_do_not_make_a_dead_letter(asked, attempts):
    ledger = owing(received_s=60, started_s=60, attempt=3)
    [owed] = plan(ledger, NOW, max_age_s=600, resume=True, turn_s=900, asked=lambda _: asked).serve
    assert owed.attempts == attempts


def test_without_resuming_a_turn_that_had_begun_gets_the_note_that_says_so():
    found = plan(owing(received_s=5, started_s=5), NOW, max_age_s=600, resume=False, turn_s=900)
    assert len(found.cut) == 1


def test_what_was_said_behind_a_turn_that_goes_on_goes_on_too():
    ledger = owing(received_s=1400, started_s=1400)
    later = Received.of(message(2))
    later.at, later.seq = ago(1300), 3
    ledger.apply(later)
    found = plan(ledger, NOW, max_age_s=600, resume=True, turn_s=900)
    assert [owed.received.message_id for owed in found.serve] == ["m1", "m2"]
    assert not found.stale
