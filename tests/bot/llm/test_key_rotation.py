"""Several keys of one provider: which one a call takes, and what happens when one refuses."""

import logging
import math

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config.settings import LlmRetry, RateLimitedRetry
from bot.llm.policies.gate import Gate, GatedModel
from bot.llm.policies.key_rotation import MOST_MOVED, KeyedModel, KeyOfThread, KeyRotation
from bot.llm.policies.queue import CallQueue
from bot.llm.policies.retry import RetryingModel
from bot.ports.errors import (
    BadRequest,
    ContentPolicy,
    ModelConnection,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    PaymentRequired,
    ProviderError,
    RateLimited,
    Unauthorized,
)
from bot.ports.model import Request
from tests.bot.llm.herd import OPEN
from tests.sim.loop import virtual_loop, virtual_time
from tests.tool_context import unheard
from tests.world import Scripted, says
from threads.model import TextReset, Waiting

anyio_backend = virtual_time

OF_THE_KEY = [Unauthorized, PaymentRequired, RateLimited]
NOT_OF_THE_KEY = [ModelUnavailable, ModelTimeout, ModelConnection, ModelNotFound, BadRequest, ContentPolicy]
POLICY = LlmRetry(max_retries=0, rate_limited=RateLimitedRetry(attempts=3))


class Keys:
    """Models behind a key each, with real gates; the thread begins with the first of them."""

    def __init__(self, *scripts, thread="t", **gate):
        self.models = [Scripted(*script) for script in scripts]
        self.gates = [Gate(CallQueue(**(OPEN | gate))) for _ in scripts]
        keys = [
            KeyedModel(
                number,
                RetryingModel(GatedModel(model, gate, lambda _: 1), POLICY, lambda: 0.5, gate),
                lambda gate=gate: gate.unavailable("fake/one"),
            )
            for number, (model, gate) in enumerate(zip(self.models, self.gates, strict=True), 1)
        ]
        self.key_of = KeyOfThread(len(keys))
        self.key_of.move(thread, 0)
        self.rotation = KeyRotation(keys, self.key_of, thread)
        self.heard = []

    async def complete(self, request=Request("", ())) -> str:
        async def hear(event):
            self.heard.append(event)

        with anyio.fail_after(600):
            return (await self.rotation.complete(request, hear)).message.text

    @property
    def asked(self):
        return [len(model.requests) for model in self.models]


@pytest.mark.parametrize("error", OF_THE_KEY)
async def test_a_failure_of_one_key_is_the_next_keys_call_at_once_and_nobody_waits(error, caplog):
    keys = Keys([error()], [says("second")], [])
    with caplog.at_level(logging.WARNING):
        assert await keys.complete() == "second"
    assert keys.asked == [1, 1, 0]
    assert anyio.current_time() == 1000
    assert keys.heard[0] == TextReset()
    assert not any(isinstance(event, Waiting) for event in keys.heard)
    [line] = [record for record in caplog.records if record.getMessage().startswith("model.key_rotated")]
    assert (line.code, line.from_key, line.key) == (error.code, 1, 2)


@pytest.mark.parametrize("error", NOT_OF_THE_KEY)
async def test_a_failure_that_another_key_has_as_well_is_raised(error):
    keys = Keys([error()], [])
    with pytest.raises(error):
        await keys.complete()
    assert keys.asked == [1, 0]


@pytest.mark.parametrize("error", OF_THE_KEY)
async def test_the_thread_stays_with_the_key_that_answered(error):
    keys = Keys([error(), says("first again")], [says("1"), says("2")])
    assert [await keys.complete(), await keys.complete()] == ["1", "2"]
    await anyio.sleep(7200)
    assert await keys.complete() == "ok"
    assert keys.asked == [1, 3], "its prompts are in the cache of the second key now"


async def test_another_thread_passes_over_a_key_that_is_known_to_be_refused():
    keys = Keys([Unauthorized()], [])
    await keys.complete()
    keys.key_of.move("other", 0)
    other = KeyRotation(keys.rotation.keys, keys.key_of, "other")
    await other.complete(Request("", ()), unheard)
    assert keys.asked == [1, 2]


async def test_the_last_free_key_retries_and_waits_as_an_only_key_does():
    keys = Keys([Unauthorized()], [RateLimited(), says("later")])
    assert await keys.complete() == "later"
    assert keys.asked == [1, 2]
    assert anyio.current_time() == pytest.approx(1005, abs=0.1)


async def test_a_key_that_was_spared_its_waits_gets_them_when_no_other_is_left():
    keys = Keys([RateLimited(retry_after=20), says("first after all")], [PaymentRequired()])
    assert await keys.complete() == "first after all"
    assert keys.asked == [2, 1]
    assert 1020 <= anyio.current_time() < 1025


async def test_when_all_keys_are_refused_the_failure_is_raised_and_the_next_call_waits_for_a_probe():
    keys = Keys([Unauthorized()], [PaymentRequired(), says("topped up")])
    with pytest.raises(Unauthorized):
        await keys.complete()
    assert keys.rotation.unavailable().code in ("auth", "payment")
    assert await keys.complete() == "ok"
    assert sum(keys.asked) == 3


async def test_a_rate_limit_is_what_is_raised_when_keys_fail_in_different_ways():
    keys = Keys([Unauthorized()], [RateLimited(retry_after=500)])
    with pytest.raises(RateLimited) as raised:
        await keys.complete()
    assert raised.value.retry_after == 500


async def test_a_provider_that_is_down_is_waited_for_and_not_asked_with_each_key():
    keys = Keys([ModelUnavailable()], [])
    keys.gates[0].queue.lane("fake/one").own.attempt_failed(ModelUnavailable(), "elsewhere", 1000)
    with pytest.raises(ModelUnavailable):
        await keys.complete()
    assert keys.rotation.unavailable().code == "unavailable"
    assert await keys.complete() == "ok", "the last candidate's call is its probe"
    assert keys.asked == [2, 0]
    assert anyio.current_time() == pytest.approx(1005, abs=0.1)


async def test_a_call_that_the_turn_can_do_without_takes_another_key_too():
    keys = Keys([RateLimited()], [says("summary")])
    assert await keys.complete(Request("", (), last_resort=False, best_effort=True)) == "summary"


async def test_with_another_model_left_nobody_waits_for_any_key():
    keys = Keys([RateLimited()], [RateLimited()])
    with pytest.raises(RateLimited):
        await keys.complete(Request("", (), last_resort=False))
    assert keys.asked == [1, 1]
    assert anyio.current_time() == 1000


async def test_a_call_in_line_for_a_key_takes_another_when_that_one_is_limited_meanwhile():
    async def slow():
        await anyio.sleep(3)
        raise RateLimited(retry_after=60)

    keys = Keys([slow], [], max_parallel=1)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(keys.complete)
    assert keys.asked == [1, 2]
    assert anyio.current_time() == pytest.approx(1003, abs=0.1)


def test_threads_are_spread_over_the_keys_the_same_way_in_every_process():
    of = KeyOfThread(3)
    first = [of.place(f"slack:T1:C1:{n}") for n in range(300)]
    assert first == [KeyOfThread(3).place(f"slack:T1:C1:{n}") for n in range(300)]
    assert min(first.count(place) for place in range(3)) > 70


def test_only_so_many_moved_threads_are_remembered():
    of = KeyOfThread(2)
    first = of.place("t")
    of.move("t", 1 - first)
    assert of.place("t") == 1 - first
    for n in range(2 * MOST_MOVED + 1000):
        of.move(f"x{n}", 1)
    assert of.place("t") == first


STEPS = st.lists(st.sampled_from([None, *OF_THE_KEY, ModelUnavailable]), max_size=4)
WAITS = st.sampled_from([None, 1, 30, 500])


@given(st.lists(STEPS, min_size=2, max_size=4), WAITS, st.booleans(), st.booleans(), st.sampled_from([1, 3]))
def test_every_call_ends_and_no_key_is_asked_more_than_its_retries(
    scripts, wait, last, best_effort, threshold
):
    def play(script):
        return [says("ok") if step is None else step(retry_after=wait) for step in script]

    async def turn():
        keys = Keys(*map(play, scripts), threshold=threshold)
        for _ in range(4):
            before = keys.asked
            try:
                await keys.complete(
                    Request("", (), last_resort=last and not best_effort, best_effort=best_effort)
                )
            except ProviderError as error:
                assert error.retry_after is None or error.retry_after < math.inf
            for now, then in zip(keys.asked, before, strict=True):
                assert now - then <= 2 * POLICY.rate_limited.attempts
        assert all(lane.out == 0 and not lane.queue for gate in keys.gates for lane in gate.queue.lanes)

    anyio.run(turn, backend_options=virtual_loop(1))
