"""How many bad requests are let through, and for how long nothing is asked after a ban."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transports.discord.api import invalid_requests as module
from transports.discord.api.invalid_requests import CAREFUL_AT, SILENT_AT, WINDOW_S, InvalidRequests


def with_bad(count, status=403, *, every=0.0, **more):
    invalid_requests = InvalidRequests()
    for number in range(count):
        invalid_requests.answered(number * every, status, **more)
    return invalid_requests


def test_a_bot_in_good_standing_may_ask_anything():
    invalid_requests = with_bad(CAREFUL_AT - 1)
    assert invalid_requests.wait(0.0, urgent=False) == 0
    assert invalid_requests.trouble(0.0) == ""


@pytest.mark.parametrize("status", [401, 403, 429])
def test_many_bad_answers_hold_cosmetic_calls_back_until_enough_are_old(status):
    invalid_requests = with_bad(CAREFUL_AT, status)
    assert invalid_requests.wait(100.0, urgent=False) == WINDOW_S - 100
    assert invalid_requests.wait(100.0, urgent=True) == 0
    assert f"{CAREFUL_AT} refused requests" in invalid_requests.trouble(100.0)
    assert invalid_requests.wait(WINDOW_S, urgent=False) == 0
    assert invalid_requests.trouble(WINDOW_S) == ""


def test_nothing_is_asked_well_below_the_ban():
    invalid_requests = with_bad(SILENT_AT + 500)
    assert invalid_requests.wait(1.0, urgent=True) == WINDOW_S - 1
    assert SILENT_AT < 10_000


@pytest.mark.parametrize(
    ("status", "shared"), [(404, False), (400, False), (500, False), (200, False), (429, True)]
)
def test_what_discord_does_not_count_is_not_counted(status, shared):
    assert with_bad(SILENT_AT, status, shared=shared).wait(0.0, urgent=False) == 0


def test_bans_grow_until_an_hour_and_a_good_answer_begins_anew():
    invalid_requests, now, waits = InvalidRequests(), 0.0, []
    for _ in range(5):
        waits.append(invalid_requests.banned(now))
        assert invalid_requests.wait(now, urgent=True) == waits[-1]
        assert "shut out" in invalid_requests.trouble(now)
        now += waits[-1]
        assert invalid_requests.wait(now, urgent=True) == 0
    assert waits == [600, 1200, 2400, 3600, 3600]
    invalid_requests.answered(now, 200)
    assert invalid_requests.banned(now) == 600


def test_one_ban_is_counted_once_though_many_calls_meet_it():
    invalid_requests = InvalidRequests()
    assert invalid_requests.banned(0.0) == 600
    assert invalid_requests.banned(10.0) == 590
    invalid_requests.answered(20.0, 200)  # was under way
    assert invalid_requests.banned(600.0) == 1200


@given(st.lists(st.floats(0, 300), max_size=300), st.integers(1, 50))
def test_who_asks_only_when_it_may_stays_below_the_mark(pauses, most):
    invalid_requests, asked, now = InvalidRequests(), [], 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CAREFUL_AT", most)
        for pause in pauses:
            now += pause
            if not invalid_requests.wait(now, urgent=False):
                asked.append(now)
                invalid_requests.answered(now, 403)
    for start in asked:
        assert sum(start <= at < start + WINDOW_S for at in asked) <= most
