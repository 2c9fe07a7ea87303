"""When a model's circuit opens, who probes it, and when it closes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.llm.policies.breaker import Breaker
from bot.ports.errors import (
    BadRequest,
    ContentPolicy,
    ContextOverflow,
    ModelConnection,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    OutputInvalid,
    PaymentRequired,
    RateLimited,
    Unauthorized,
    UnknownFailure,
)

TRANSIENT = [
    (RateLimited, 60),
    (ModelTimeout, 30),
    (ModelUnavailable, 60),
    (ModelConnection, 30),
    (UnknownFailure, 60),
]
PERMANENT = [Unauthorized, PaymentRequired, ModelNotFound]


def state(breaker, now):
    if breaker.failure is None:
        return "closed"
    return "half-open" if breaker.admits(now, last_resort=False) else "open"


def in_doubt(threshold=1, at=0.0):
    """Return a closed breaker after failures of two threads."""
    breaker = Breaker(threshold)
    for thread in "ab":
        breaker.attempt_failed(ModelTimeout(), thread, at)
    return breaker


def opened(error, at=0.0):
    breaker = in_doubt(1, at)
    breaker.exhausted(error, at)
    assert state(breaker, at) == "open"
    return breaker


def opens(breaker, last_resort=False):
    return breaker.probe_at(last_resort=last_resort)


def full_pool():
    error = ModelConnection("no connection of ours is free")
    error.alone = True
    return error


def too_large():
    error = RateLimited("request too large")
    error.alone = True
    return error


@pytest.mark.parametrize(("kind", "cooldown"), TRANSIENT)
def test_one_call_that_gave_up_opens_it_until_the_cooldown_is_half_over_or_nearly_over(kind, cooldown):
    breaker = opened(kind())
    half_open_at = cooldown - min(30, cooldown / 2)
    assert not breaker.admits(half_open_at - 0.1, last_resort=False)
    assert state(breaker, half_open_at) == "half-open"
    assert breaker.admits(half_open_at, last_resort=False)


@pytest.mark.parametrize("kind", PERMANENT)
def test_what_needs_a_person_opens_it_for_half_an_hour_whatever_the_threshold(kind):
    breaker = Breaker(5)
    breaker.exhausted(kind(), 0)
    assert opens(breaker) == 1800 - 30
    assert opens(breaker, last_resort=True) == 60
    assert opens(opened(PaymentRequired(retry_after=9000))) == 9000


@pytest.mark.parametrize(
    "error", [BadRequest(), ContextOverflow(), ContentPolicy(), OutputInvalid(), full_pool(), too_large()]
)
def test_what_is_about_the_request_or_our_own_never_counts(error):
    breaker = Breaker(1)
    for n in range(9):
        breaker.attempt_failed(error, str(n), 0)
        breaker.exhausted(error, 0)
    assert state(breaker, 0) == "closed"


def test_a_threshold_counts_calls_in_a_row():
    breaker = in_doubt(3)
    for error in (ModelTimeout(), RateLimited()):
        breaker.exhausted(error, 0)
    breaker.succeeded(1, probe=breaker.start())
    assert not breaker.in_doubt
    for thread in "ab":
        breaker.attempt_failed(ModelTimeout(), thread, 2)
    for error in (ModelTimeout(), BadRequest(), RateLimited()):
        breaker.exhausted(error, 0)
    assert state(breaker, 0) == "closed"
    breaker.exhausted(ModelTimeout(), 0)
    assert state(breaker, 0) == "open"


def test_one_thread_alone_never_opens_it_and_the_next_failure_of_another_does():
    breaker = Breaker(1)
    for now in range(9):
        breaker.attempt_failed(ModelUnavailable(), "a", now)
        breaker.exhausted(ModelUnavailable(), now)
    assert (state(breaker, 9), breaker.in_doubt) == ("closed", False)
    breaker.attempt_failed(BadRequest(), "b", 9)
    assert state(breaker, 9) == "closed"
    breaker.attempt_failed(ModelUnavailable(), "b", 9)
    assert state(breaker, 9) == "open"


def test_a_success_in_between_clears_the_provider_but_not_that_of_a_call_from_before():
    breaker = Breaker(1)
    for began_at, opens_it in ((10, False), (9.9, True)):
        breaker.attempt_failed(ModelUnavailable(), "a", 10)
        breaker.exhausted(ModelUnavailable(), 10)
        breaker.succeeded(began_at, probe=False)
        breaker.attempt_failed(ModelUnavailable(), "b", 11)
        assert (breaker.failure is not None) is opens_it
        breaker.succeeded(12, probe=False)


def test_no_probe_goes_out_before_a_retry_after_is_over():
    assert opens(opened(RateLimited(retry_after=20))) == 20
    assert opens(opened(RateLimited(retry_after=3600)), last_resort=True) == 3600


def test_exactly_one_probe_goes_out_and_its_success_closes():
    breaker = opened(ModelTimeout())
    assert breaker.start()
    assert not breaker.admits(1000, last_resort=True)
    breaker.succeeded(0, probe=True)
    assert state(breaker, 1000) == "closed"
    assert not breaker.start()
    assert not breaker.start()


def test_a_probe_that_fails_opens_it_for_twice_the_time_up_to_ten_minutes():
    breaker, now, pauses = opened(ModelTimeout()), 0.0, []
    for _ in range(7):
        pauses.append(opens(breaker) - now)
        now = opens(breaker)
        breaker.start()
        breaker.failed(ModelTimeout(), now)
    assert pauses == [15, 30, 90, 210, 450, 570, 570]


def test_a_success_forgets_how_often_it_was_opened():
    breaker = opened(ModelTimeout())
    breaker.start()
    breaker.failed(ModelTimeout(), 100)
    breaker.start()
    breaker.succeeded(0, probe=True)
    for thread in "ab":
        breaker.attempt_failed(ModelTimeout(), thread, 1000)
    breaker.exhausted(ModelTimeout(), 1000)
    assert opens(breaker) == 1015


def test_who_has_no_other_model_may_probe_every_five_seconds_however_often_it_was_doubled():
    breaker, now = opened(ModelUnavailable()), 0.0
    for _ in range(5):
        now = opens(breaker)
        breaker.start()
        breaker.failed(ModelUnavailable(), now)
    assert opens(breaker) - now == 570
    assert opens(breaker, last_resort=True) - now == 5


@pytest.mark.parametrize(
    "ending", [lambda breaker: breaker.cancelled(), lambda breaker: breaker.failed(BadRequest(), 50)]
)
def test_a_probe_that_says_nothing_of_the_provider_is_given_back(ending):
    breaker = opened(ModelTimeout())
    breaker.start()
    ending(breaker)
    assert breaker.admits(50, last_resort=False)
    assert state(breaker, 50) == "half-open"


def test_calls_that_were_under_way_when_it_opened_change_nothing():
    breaker = opened(ModelTimeout())
    breaker.exhausted(ModelTimeout(), 10)
    breaker.succeeded(20, probe=False)
    assert state(breaker, 10) == "open"
    assert opens(breaker) == 15


ERRORS = st.sampled_from([kind for kind, _ in TRANSIENT] + PERMANENT + [BadRequest])
STEPS = st.tuples(
    st.sampled_from(["succeed", "fail", "cancel"]), ERRORS, st.floats(0, 5000), st.sampled_from("ab")
)


@given(st.integers(1, 3), st.lists(STEPS, max_size=60))
def test_it_never_wedges(threshold, steps):
    """After whatever happened a call may go out at a time that is known, and its success closes the circuit."""
    breaker, now = Breaker(threshold), 0.0
    for what, kind, pause, thread in steps:
        now += pause
        if not breaker.admits(now, last_resort=True):
            assert now < opens(breaker, last_resort=True) <= now + 3600
            continue
        probe, error = breaker.start(), kind()
        assert not (probe and breaker.admits(now, last_resort=True))
        if what == "succeed":
            breaker.succeeded(now, probe=probe)
            assert state(breaker, now) == "closed"
        elif what == "fail":
            if probe:
                breaker.failed(error, now)
            breaker.attempt_failed(error, thread, now)
            breaker.exhausted(error, now)
        elif probe:
            breaker.cancelled()
        assert not breaker.probing
