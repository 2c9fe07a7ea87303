"""How long a failed call waits, and when it is given up."""

import itertools
from contextlib import suppress

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config.settings import LlmRetry, RateLimitedRetry
from bot.llm.policies.retry import RetryingModel, attempts, retry_delay
from bot.ports.errors import (
    BadRequest,
    ContentPolicy,
    ContextOverflow,
    ModelConnection,
    ModelLoading,
    ModelTimeout,
    ModelUnavailable,
    PaymentRequired,
    ProviderError,
    RateLimited,
    Unauthorized,
    UnknownFailure,
)
from bot.ports.model import QueuePlace, Request
from tests.sim.loop import virtual_loop, virtual_time
from tests.tool_context import unheard
from tests.world import Scripted, says
from threads.model import Resumed, TextReset, Waiting

POLICY = LlmRetry()


anyio_backend = virtual_time


def waits(error, policy=POLICY, random=lambda: 0.5, most=10, *, local=False):
    found = []
    for failures in range(1, most):
        wait = retry_delay(error, failures, policy, random, local=local)
        if wait is None:
            return found
        found.append(wait)
    return found


@pytest.mark.parametrize("kind", [ModelTimeout, ModelUnavailable, ModelConnection, RateLimited])
def test_a_passing_failure_is_tried_again_after_2_4_and_8_seconds(kind):
    assert waits(kind()) == [2, 4, 8]


def test_a_rate_limit_may_have_a_longer_schedule_whose_attempts_include_the_first_call():
    policy = LlmRetry(max_retries=0, rate_limited=RateLimitedRetry())
    assert waits(RateLimited(), policy) == [5, 10, 20, 40, 80]
    assert (attempts(RateLimited(), policy), attempts(ModelTimeout(), policy)) == (6, 1)
    assert waits(RateLimited(retry_after=1), policy, lambda: 0.0) == [1] * 5
    assert waits(RateLimited(), policy, local=True) == [5, 10, 20, 40, 80]


def test_a_wait_varies_by_a_fifth():
    assert retry_delay(ModelTimeout(), 1, POLICY, lambda: 0.0) == pytest.approx(1.6)
    assert retry_delay(ModelTimeout(), 1, POLICY, lambda: 1.0) == pytest.approx(2.4)


@pytest.mark.parametrize("kind", [RateLimited, ModelUnavailable])
def test_the_providers_own_word_is_obeyed_up_to_a_limit(kind):
    assert retry_delay(kind(retry_after=20), 1, POLICY, lambda: 0.0) == 20
    assert retry_delay(kind(retry_after=20), 1, POLICY, lambda: 1.0) == pytest.approx(22)
    assert retry_delay(kind(retry_after=120), 1, POLICY, lambda: 0.0) == 120
    assert retry_delay(kind(retry_after=121), 1, POLICY, lambda: 0.0) is None


@pytest.mark.parametrize("kind", [Unauthorized, PaymentRequired, BadRequest, ContentPolicy, ContextOverflow])
def test_what_will_not_pass_is_not_tried_again(kind):
    assert waits(kind()) == []


def test_a_failure_without_a_name_is_tried_once_more():
    assert waits(UnknownFailure()) == [2]
    assert attempts(UnknownFailure(), POLICY) == 2
    assert attempts(UnknownFailure(), LlmRetry(max_retries=0)) == 1


def test_a_provider_that_says_no_retry_is_believed():
    error = ModelUnavailable("x-should-retry: false")
    error.retryable = False
    assert waits(error) == []


@pytest.mark.parametrize(
    "kind", [RateLimited, ModelTimeout, ModelUnavailable, ModelConnection, UnknownFailure]
)
def test_only_the_codes_of_the_settings_are_tried_again(kind):
    assert waits(kind())
    assert waits(kind(), LlmRetry(retryable=(kind.code,)))
    others = tuple(code for code in LlmRetry().retryable if code != kind.code)
    assert waits(kind(), LlmRetry(retryable=others)) == []
    assert waits(kind(retry_after=1), LlmRetry(retryable=())) == []


@pytest.mark.parametrize("kind", [ModelConnection, RateLimited])
def test_a_local_server_is_tried_again_at_once(kind):
    assert waits(kind(), local=True) == [0, 4, 8]


def test_other_growths_are_linear_or_anywhere_up_to_the_longest():
    assert waits(ModelTimeout(), LlmRetry(backoff="linear")) == [2, 4, 6]
    assert waits(ModelTimeout(), LlmRetry(backoff="fixed")) == [2, 2, 2]
    own = RateLimitedRetry(attempts=7)
    assert waits(RateLimited(), LlmRetry(backoff="fixed", rate_limited=own)) == [5] * 6
    assert waits(ModelTimeout(), LlmRetry(backoff="jittered"), lambda: 0.25) == [0.5, 1, 2]
    assert waits(ModelTimeout(), LlmRetry(max_delay_ms=3000)) == [2, 3, 3]


async def test_each_wait_is_told_and_the_text_of_the_failed_call_is_taken_back():
    model = RetryingModel(Scripted(RateLimited(), ModelTimeout(), says("at last")), POLICY, lambda: 0.5)
    told = []

    async def on_event(event):
        told.append(event)

    before = anyio.current_time()
    completion = await model.complete(Request("", ()), on_event)
    assert completion.message.text == "at last"
    assert anyio.current_time() - before == 6
    assert told[:6] == [
        TextReset(),
        Waiting("rate limited", 2, 2, 4),
        Resumed(),
        TextReset(),
        Waiting("no answer in time", 4, 3, 4),
        Resumed(),
    ]


class Gate:
    """Keeps what it is told."""

    def __init__(self):
        self.told = []
        self.numbers = itertools.count(1)

    def place(self):
        return QueuePlace(next(self.numbers), 0)

    def hold(self, model, seconds, error):
        self.told.append(("hold", model, seconds, error.code))

    def exhausted(self, model, error):
        self.told.append(("exhausted", model, error.code))


async def test_the_gate_is_told_of_every_wait_and_of_the_end():
    gate = Gate()
    scripted = Scripted(RateLimited(), ModelTimeout(retry_after=20), Unauthorized())
    with pytest.raises(Unauthorized):
        await RetryingModel(scripted, POLICY, lambda: 0.5, gate).complete(Request("", ()), unheard)
    assert gate.told == [
        ("hold", "fake/one", 2, "rate_limited"),
        ("hold", "fake/one", 21, "timeout"),
        ("exhausted", "fake/one", "auth"),
    ]


async def test_all_attempts_of_a_call_have_one_place_in_the_queue_and_the_next_call_another():
    scripted = Scripted(ModelTimeout(), ModelTimeout(), says("ok"), ModelTimeout(), says("ok"))
    model, request = RetryingModel(scripted, POLICY, lambda: 0.5, Gate()), Request("", ())
    await model.complete(request, unheard)
    await model.complete(request, unheard)
    assert [attempt.place.number for attempt in scripted.requests] == [1, 1, 1, 2, 2]


async def test_a_rate_limit_is_handed_over_at_once_when_another_model_can_be_asked():
    scripted, gate = Scripted(RateLimited(), says("too late")), Gate()
    with pytest.raises(RateLimited):
        await RetryingModel(scripted, POLICY, lambda: 0.5, gate).complete(
            Request("", (), last_resort=False), unheard
        )
    assert gate.told == [("exhausted", "fake/one", "rate_limited")]
    assert anyio.current_time() == 1000
    passing = Scripted(ModelTimeout(), says("ok"))
    model = RetryingModel(passing, POLICY, lambda: 0.5)
    assert (await model.complete(Request("", (), last_resort=False), unheard)).message.text == "ok"


async def test_a_server_that_loads_its_model_is_waited_for_as_long_as_the_turn_may_take():
    told = []

    async def on_event(event):
        told.append(event)

    loading = [ModelLoading(retry_after=5) for _ in range(60)]
    model = RetryingModel(Scripted(*loading, says("ready")), POLICY, lambda: 0.0, gate := Gate())
    with anyio.fail_after(600):
        assert (await model.complete(Request("", ()), on_event)).message.text == "ready"
    assert anyio.current_time() == 1300
    assert told[1] == Waiting("the model is loading", 5, 2, 0)
    model = RetryingModel(Scripted(*loading), POLICY, lambda: 0.0, gate)
    with anyio.fail_after(28), pytest.raises(ModelLoading):
        await model.complete(Request("", ()), unheard)
    assert anyio.current_time() == 1325


async def test_another_model_that_is_free_answers_in_place_of_one_that_loads():
    model = RetryingModel(Scripted(ModelLoading(retry_after=5)), POLICY, lambda: 0.5)
    with pytest.raises(ModelLoading):
        await model.complete(Request("", (), last_resort=False), unheard)
    assert anyio.current_time() == 1000


async def test_a_wait_that_would_pass_the_deadline_is_not_begun_and_the_failure_is_told():
    scripted, gate = Scripted(*[ModelTimeout(str(n)) for n in range(9)]), Gate()
    with anyio.fail_after(6), pytest.raises(ModelTimeout, match="1"):
        await RetryingModel(scripted, POLICY, lambda: 0.5, gate).complete(Request("", ()), unheard)
    assert anyio.current_time() == 1002
    assert gate.told[-1] == ("exhausted", "fake/one", "timeout")


KINDS = st.sampled_from(
    [ModelTimeout, ModelUnavailable, RateLimited, ModelConnection, UnknownFailure, BadRequest]
)
FAULTS = st.lists(st.tuples(KINDS, st.sampled_from([None, None, 1, 30, 500]), st.floats(0, 20)), max_size=12)


@given(FAULTS, st.floats(0.1, 400), st.floats(0, 1), st.booleans())
def test_no_try_begins_after_the_deadline_and_no_failure_is_lost_to_it(faults, deadline, luck, last_resort):
    """Whatever goes wrong, a turn gets an answer or the provider's last failure while there is time to tell it."""
    begun = []

    class Faulty:
        name = "fake/one"

        async def complete(self, request, on_event):
            begun.append(anyio.current_time())
            if len(begun) > len(faults):
                return says("ok")
            kind, retry_after, seconds = faults[len(begun) - 1]
            await anyio.sleep(seconds)
            raise kind(retry_after=retry_after)

    async def turn():
        waiting = False

        async def listen(event):
            nonlocal waiting
            waiting = isinstance(event, Waiting) or (waiting and not isinstance(event, Resumed))

        with anyio.move_on_after(deadline) as scope:
            model = RetryingModel(Faulty(), POLICY, lambda: luck)
            with suppress(ProviderError):
                await model.complete(Request("", (), last_resort=last_resort), listen)
        assert not waiting, "the deadline fell into a wait of ours"
        assert anyio.current_time() <= 1000 + deadline + 1e-6
        assert all(at < 1000 + deadline for at in begun)
        assert len(begun) <= 4
        assert scope.cancel_called == (anyio.current_time() >= 1000 + deadline - 1e-6)

    anyio.run(turn, backend_options=virtual_loop(1))
