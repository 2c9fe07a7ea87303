"""Who goes through the gate, when, and what the others are told."""

import gc
import itertools
import math
import random as rng
import weakref
from contextlib import suppress
from functools import partial

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from bot.config.settings import LlmRetry
from bot.llm.policies.gate import Gate, GatedModel
from bot.llm.policies.queue import CallQueue, Ticket
from bot.llm.policies.retry import RetryingModel
from bot.llm.policies.token_bucket import CongestionWindow, TokenBucket
from bot.ports.errors import (
    BadRequest,
    ModelConnection,
    ModelTimeout,
    ModelUnavailable,
    PaymentRequired,
    ProviderError,
    RateLimited,
    Unauthorized,
)
from bot.ports.model import Completion, QueuePlace, Request, Usage
from tests.bot.llm.herd import OPEN
from tests.sim.loop import virtual_loop, virtual_time
from tests.tool_context import unheard
from threads.model import Message, Resumed, Text, Waiting

anyio_backend = virtual_time


ONCE = LlmRetry(max_retries=0)


class Provider:
    """Says what it is told to, one after the other, else "ok" after a second; an event is waited for first."""

    def __init__(self, *script, name="fake/one"):
        self.script, self.name = list(script), name
        self.asked, self.running, self.most = [], 0, 0

    async def complete(self, request, on_event):
        self.asked.append((anyio.current_time() - 1000.0, request.cache_key))
        self.running += 1
        self.most = max(self.most, self.running)
        step = self.script.pop(0) if self.script else None
        try:
            if isinstance(step, anyio.Event):
                await step.wait()
            else:
                await anyio.sleep(1)
            if isinstance(step, Exception):
                raise step
        finally:
            self.running -= 1
        return Completion(Message("assistant", (Text("ok"),)), Usage(100, 50), "end")


class GatedCalls:
    """Calls through one gate, and how they ended."""

    def __init__(self, provider, policy=ONCE, gate=None, **given):
        self.gate = gate or Gate(CallQueue(**(OPEN | given)))
        self.provider = provider
        self.model = RetryingModel(
            GatedModel(provider, self.gate, lambda _: 150), policy, lambda: 0.5, self.gate
        )
        self.ends, self.events, self.scopes = {}, {}, {}

    async def call(self, name, last_resort=True, within=math.inf):
        self.events[name] = []

        async def listen(event):
            self.events[name].append(event)

        with anyio.move_on_after(within) as self.scopes[name]:
            try:
                await self.model.complete(Request("", (), cache_key=name, last_resort=last_resort), listen)
                self.ends[name] = "ok"
            except ProviderError as error:
                self.ends[name] = error

    async def arrive(self, tasks, count):
        """Let so many calls come, one after the other."""
        for n in range(count):
            tasks.start_soon(self.call, str(n))
            await anyio.sleep(0.001)

    def fail_elsewhere(self, thread="elsewhere"):
        """Note that a call of another thread failed now."""
        lane = self.gate.queue.lane(self.provider.name)
        lane.own.attempt_failed(ModelTimeout(), thread, anyio.current_time())

    async def open_circuit(self, error):
        """Have one call give up after that of another thread failed."""
        self.fail_elsewhere()
        self.provider.script.append(error)
        await self.call("first")
        assert self.ends["first"] is error


def running(gate):
    return sum(lane.out for lane in gate.queue.lanes)


def waiting(gate):
    return sum(len(lane.queue) for lane in gate.queue.lanes)


async def at(second):
    """Sleep until so many seconds after the start of the test."""
    await anyio.sleep_until(1000.0 + second)


async def test_calls_go_out_in_the_order_of_their_arrival_as_many_as_the_window_holds():
    calls = GatedCalls(Provider(), max_parallel=4)
    async with anyio.create_task_group() as tasks:
        await calls.arrive(tasks, 20)
    assert [key for _, key in calls.provider.asked] == [str(n) for n in range(20)]
    assert calls.provider.most == 4


async def test_twenty_wait_when_the_circuit_half_opens_and_exactly_one_goes_through():
    calls = GatedCalls(Provider())
    await calls.open_circuit(ModelUnavailable())
    probe = anyio.Event()
    calls.provider.script.append(probe)
    async with anyio.create_task_group() as tasks:
        await calls.arrive(tasks, 20)
        await at(90)
        assert calls.provider.asked[1:] == [(pytest.approx(6, abs=0.1), "0")], "a second to fail, and 5 s"
        assert running(calls.gate) == 1
        assert waiting(calls.gate) == 19
        probe.set()
    assert set(calls.ends.values()) - {calls.ends["first"]} == {"ok"}
    by_instant = sorted((second, int(key)) for second, key in calls.provider.asked[1:])
    assert [n for _, n in by_instant] == list(range(20))
    starts = [round(second - 90) for second, _ in calls.provider.asked[2:]]
    assert starts[:3] == [0, 1, 1], "after an outage one goes alone, then two"
    assert Waiting("the provider has trouble", pytest.approx(5, abs=1)) in calls.events["5"]
    assert calls.events["5"][-1] == Resumed()


async def test_a_probe_that_is_cancelled_gives_way_to_the_next():
    calls = GatedCalls(Provider())
    await calls.open_circuit(ModelUnavailable())
    calls.provider.script += [anyio.Event(), anyio.Event()]
    async with anyio.create_task_group() as tasks:
        await calls.arrive(tasks, 5)
        await at(40)
        calls.scopes["0"].cancel()
        await at(50)
        assert [key for _, key in calls.provider.asked[1:]] == ["0", "1"]
        calls.scopes["1"].cancel()
    assert [calls.ends.get(str(n)) for n in range(5)] == [None, None, "ok", "ok", "ok"]


async def test_behind_a_hung_probe_the_patience_ends_and_the_person_is_told():
    calls = GatedCalls(Provider())
    await calls.open_circuit(ModelTimeout())
    calls.provider.script.append(anyio.Event())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(calls.call, "hung", True, 900)
        await at(5)
        await calls.call("next")
        assert anyio.current_time() - 1000 == pytest.approx(125, abs=0.1)
        assert isinstance(calls.ends["next"], ModelTimeout)
        assert not calls.ends["next"].retryable
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", [ModelUnavailable, RateLimited, ModelTimeout, ModelConnection])
@pytest.mark.parametrize("down_s", [20, 100, 1000, 5000])
@pytest.mark.parametrize("policy", [ONCE, LlmRetry()], ids=["no retries", "as shipped"])
async def test_an_outage_costs_a_person_at_most_ten_seconds_after_its_end(policy, kind, down_s):
    class Down(Provider):
        async def complete(self, request, on_event):
            self.script = [kind()] if anyio.current_time() < 1000 + down_s else []
            return await super().complete(request, on_event)

    calls = GatedCalls(Down(), policy)
    async with anyio.create_task_group() as tasks:
        for n in range(0, down_s, 20):
            await at(n)
            tasks.start_soon(calls.call, str(n))
        await at(down_s)
        await calls.call("late")
        assert anyio.current_time() - 1000 <= down_s + 10
    assert calls.ends["late"] == "ok"
    asked = [second for second, _ in calls.provider.asked if second < down_s]
    assert policy is not ONCE or all(after - before >= 5 for before, after in itertools.pairwise(asked))


async def test_a_key_that_is_mended_is_found_within_a_minute_and_who_waits_for_a_refused_one_is_told():
    calls = GatedCalls(Provider(Unauthorized(), Unauthorized()), max_parallel=1)
    async with anyio.create_task_group() as tasks:
        for n in range(4):
            tasks.start_soon(calls.call, str(n))
            await anyio.sleep(0.3)
    assert anyio.current_time() - 1000 <= 1.3, "who came before the refusal has the answer"
    async with anyio.create_task_group() as tasks:
        for n in range(4, 8):
            tasks.start_soon(calls.call, str(n))
    assert anyio.current_time() - 1000 == pytest.approx(62, abs=0.1)
    assert {type(calls.ends[str(n)]) for n in range(8)} == {Unauthorized}
    await calls.call("after it is mended")
    assert calls.ends["after it is mended"] == "ok"
    assert [round(second) for second, _ in calls.provider.asked] == [0, 61, 122]


@pytest.mark.parametrize("error", [Unauthorized(), PaymentRequired()])
async def test_a_refused_account_is_refused_for_all_its_models_and_one_call_is_the_probe_of_all(error):
    gate = Gate(CallQueue(**OPEN))
    one, two = GatedCalls(Provider(), gate=gate), GatedCalls(Provider(name="fake/two"), gate=gate)
    await one.open_circuit(error)
    assert type(gate.unavailable("fake/two")) is type(error)
    assert type(gate.refused_account()) is type(error)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.call, "a")
        tasks.start_soon(two.call, "b")
    assert sorted(round(second) for second, _ in one.provider.asked + two.provider.asked) == [0, 61, 62]
    assert (one.ends["a"], two.ends["b"], gate.refused_account()) == ("ok", "ok", None)


async def test_one_probe_at_a_time_is_out_for_the_provider():
    gate = Gate(CallQueue(**OPEN))
    groups = [GatedCalls(Provider(name=f"fake/{n}"), gate=gate) for n in range(3)]
    for calls in groups:
        await calls.open_circuit(ModelUnavailable())
        calls.provider.script.append(ModelUnavailable())
    async with anyio.create_task_group() as tasks:
        for calls in groups:
            tasks.start_soon(calls.call, "probe")
    probes = sorted(second for calls in groups for second, _ in calls.provider.asked[1:])
    assert all(after - before >= 5 for before, after in itertools.pairwise(probes))


async def test_a_best_effort_call_opens_no_circuit_waits_for_none_and_its_failed_probe_is_given_back():
    calls = GatedCalls(Provider(ModelUnavailable()))
    request = Request("", (), cache_key="summary", best_effort=True, last_resort=False)
    with pytest.raises(ModelUnavailable):
        await calls.model.complete(request, unheard)
    assert calls.gate.unavailable("fake/one") is None
    await calls.open_circuit(ModelUnavailable())
    before = anyio.current_time()
    with pytest.raises(ModelUnavailable, match="no call was made"):
        await calls.model.complete(request, unheard)
    assert anyio.current_time() == before
    await at(40)
    calls.provider.script.append(ModelTimeout())
    with pytest.raises(ModelTimeout):
        await calls.model.complete(request, unheard)
    await calls.call("a person's")
    assert (calls.ends["a person's"], anyio.current_time()) == ("ok", pytest.approx(1046, abs=0.1))


async def test_who_has_another_model_does_not_wait_for_an_open_circuit():
    calls = GatedCalls(Provider())
    await calls.open_circuit(ModelUnavailable(provider="fake", model="one"))
    first = calls.ends["first"]
    why = calls.gate.unavailable("fake/one")
    await calls.call("n", last_resort=False)
    for error in (why, calls.ends["n"]):
        assert type(error) is ModelUnavailable
        assert error is not first
        assert not error.retryable
        assert error.retry_after == pytest.approx(5, abs=0.1), "then a person's call may be the probe"
        assert error.fields["model"] == "one"
    assert why is not calls.ends["n"]
    assert first.retryable
    assert first.retry_after is None
    assert len(calls.provider.asked) == 1
    assert calls.gate.unavailable("fake/two") is None
    await at(40)
    assert calls.gate.unavailable("fake/one") is None, "it may be the probe"


@pytest.mark.timeout(20)
async def test_who_has_another_model_and_has_waited_long_sleeps_until_a_held_lane_may_be_probed():
    calls = GatedCalls(Provider(), max_wait_s=10)
    place = calls.gate.place()
    await calls.open_circuit(ModelUnavailable())
    await at(40)
    calls.gate.hold("fake/one", 4, ModelUnavailable())
    await calls.gate.turn(Ticket(place, "fake/one", last_resort=False), unheard)
    assert anyio.current_time() == pytest.approx(1044, abs=0.1)


async def test_who_has_another_model_is_told_when_the_circuit_opens_while_it_queues():
    slow = anyio.Event()
    calls = GatedCalls(Provider(slow), max_parallel=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(calls.call, "slow")
        await at(1)
        for n in range(3):
            tasks.start_soon(calls.call, str(n), n == 0)
            await anyio.sleep(0.001)
        await at(5)
        calls.fail_elsewhere()
        calls.fail_elsewhere("and there")
        calls.gate.exhausted("fake/one", ModelTimeout())
        await at(5.1)
        assert [type(calls.ends.get(str(n))) for n in range(3)] == [type(None), ModelTimeout, ModelTimeout]
        slow.set()
    assert calls.ends["0"] == "ok"
    assert waiting(calls.gate) == 0


@pytest.mark.parametrize(
    ("error", "within", "retry_after"),
    [(RateLimited(retry_after=3600), math.inf, 3599), (ModelUnavailable(), 3, 5)],
)
async def test_a_circuit_that_stays_open_beyond_all_patience_or_the_deadline_is_told_at_once(
    error, within, retry_after
):
    calls = GatedCalls(Provider())
    await calls.open_circuit(error)
    await calls.call("n", within=within)
    assert anyio.current_time() == 1001
    assert type(calls.ends["n"]) is type(error)
    assert calls.ends["n"].retry_after == pytest.approx(retry_after, abs=1)


async def test_a_retry_after_stops_all_models_and_a_backoff_only_its_own():
    gate = Gate(CallQueue(**OPEN))
    policy = LlmRetry()
    limited = GatedCalls(Provider(RateLimited(retry_after=20), ModelTimeout(), name="fake/one"), policy, gate)
    limited.fail_elsewhere()
    other = GatedCalls(Provider(name="fake/two"), policy, gate)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(limited.call, "a")
        await at(1.5)
        assert isinstance(gate.unavailable("fake/two"), RateLimited)
        tasks.start_soon(other.call, "b")
        await at(23.5)
        tasks.start_soon(other.call, "c")
        tasks.start_soon(limited.call, "d")
    seconds = [round(second, 1) for second, _ in other.provider.asked]
    assert seconds == [22, 23.5], "20 s and half of a tenth of it"
    asked = [(round(second), key) for second, key in limited.provider.asked]
    assert asked == [(0, "a"), (22, "a"), (27, "d"), (28, "a")], "after a failure another thread goes first"


async def test_a_call_that_comes_back_keeps_its_place():
    calls = GatedCalls(Provider(ModelTimeout(), ModelTimeout()), LlmRetry(), max_parallel=1)
    async with anyio.create_task_group() as tasks:
        for name in "abcd":
            tasks.start_soon(calls.call, name)
            await anyio.sleep(0.001)
    asked = [key for _, key in calls.provider.asked]
    assert asked == ["a", "b", "a", "b", "c", "d"], "and after a failure another thread is asked first"


@pytest.mark.parametrize("within", [math.inf, 0.5])
async def test_of_a_call_that_broke_off_or_was_cancelled_no_conversation_is_kept(within):
    class Watched(list):
        pass

    calls = GatedCalls(Provider(ZeroDivisionError()))
    request = Request("", Watched())
    kept = weakref.ref(request.messages)
    with anyio.move_on_after(within), suppress(ZeroDivisionError):
        await calls.model.complete(request, unheard)
    del request
    await anyio.sleep(0)  # the loop lets go of the cancelled wait one step later
    gc.collect()
    assert kept() is None


async def test_what_holds_up_a_models_calls_is_told_in_words():
    calls = GatedCalls(Provider(RateLimited(retry_after=20), ModelTimeout()), LlmRetry(), max_parallel=1)
    calls.fail_elsewhere()
    tell = partial(calls.gate.describe, "fake/one")
    assert tell() == ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(calls.call, "a")
        await at(0.5)
        assert tell() == ""
        tasks.start_soon(calls.call, "b")
        await at(0.9)
        assert tell() == "1 call waits in line"
        await at(3)
        assert tell() == "rate limited, tried again in 20 seconds; 1 call waits in line"
        assert calls.gate.describe("fake/two") == "rate limited, tried again in 19 seconds"
        tasks.start_soon(calls.call, "c")
        await at(23)
        assert tell() == "2 calls wait in line"
        await at(24)
        assert tell() == "no answer in time, tried again in 2 seconds; 2 calls wait in line"
    assert tell() == ""


async def test_an_open_circuit_is_told_until_a_call_succeeds():
    calls = GatedCalls(Provider())
    await calls.open_circuit(Unauthorized())
    assert calls.gate.describe("fake/one") == "the key is not accepted, tried again in 60 seconds"
    await at(62)
    assert calls.gate.describe("fake/one") == "the key is not accepted, tried again with the next call"
    await calls.call("next")
    assert calls.gate.describe("fake/one") == ""


async def test_our_own_full_pool_holds_nothing_up():
    error = ModelConnection()
    error.alone = True
    calls = GatedCalls(Provider(error), LlmRetry())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(calls.call, "a")
        await at(1.5)
        await calls.call("b")
        assert anyio.current_time() == 1002.5
    assert calls.gate.queue.lane("fake/one").window.size > 16


async def test_a_listener_that_fails_or_a_call_that_is_cancelled_leaves_nothing_behind():
    calls = GatedCalls(Provider(), max_parallel=1)
    async with anyio.create_task_group() as tasks:
        calls.provider.script.append(anyio.Event())
        tasks.start_soon(calls.call, "hung", True, 50)
        await at(1)

        async def fails(event):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await calls.model.complete(Request("", ()), fails)
        await calls.call("impatient", within=5)
        assert waiting(calls.gate) == 0
        await calls.call("next")
    assert calls.ends == {"next": "ok"}
    assert running(calls.gate) == 0
    assert calls.events["next"] == [Waiting("many are asking the model at once", math.inf), Resumed()]


async def test_what_a_call_really_used_counts_and_reading_a_cache_is_free():
    calls = GatedCalls(Provider(), tokens_per_minute=600)  # holds 150: one call of the estimated size
    async with anyio.create_task_group() as tasks:
        await calls.arrive(tasks, 3)
    assert [round(second) for second, _ in calls.provider.asked] == [0, 15, 30]


def test_a_window_grows_as_tcps_does():
    window, sizes = CongestionWindow(256), []
    assert window.size == 16
    window.halve()
    for _ in range(8):
        window.widen()
    assert window.size == 8, "one for each window of successes"
    window.widen()
    assert window.size == 9
    window.restart()
    for _ in range(9):
        sizes.append(window.size)
        window.widen()
    assert sizes == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for _ in range(9):
        window.halve()
    assert window.size == 1
    assert CongestionWindow(3).size == 3


def test_a_bucket_holds_a_quarter_of_a_minute_and_lets_larger_ones_go_into_debt():
    bucket = TokenBucket(600)
    assert bucket.ready_at(150, 0) == 0
    bucket.take(150, 0)
    assert bucket.ready_at(10, 0) == 1
    assert bucket.ready_at(1000, 0) == 15
    bucket.take(600, 15)
    assert bucket.ready_at(1, 15) == pytest.approx(15 + 45.1)


def test_a_bucket_smaller_than_one_request_lets_one_go_at_its_pace():
    bucket = TokenBucket(3)
    for now in (0, 20, 40):
        assert bucket.ready_at(1, now) == now
        bucket.take(1, now)
        assert bucket.ready_at(1, now) == pytest.approx(now + 20)


@pytest.mark.parametrize("shrink", [True, False])
def test_calls_that_fail_together_halve_the_window_once_or_never(shrink):
    queue = CallQueue(**(OPEN | {"shrink": shrink}))
    tickets = [Ticket(QueuePlace(n, 0), "m", thread=str(n)) for n in range(16)]
    for ticket in tickets:
        queue.join(ticket)
    assert queue.admit(0) == tickets
    for ticket in tickets:
        queue.failed(ticket, RateLimited(), 1)
    assert queue.lane("m").window.size == (8 if shrink else 16)


async def test_when_the_first_in_line_leaves_the_next_one_watches_the_clock():
    calls = GatedCalls(Provider(), requests_per_minute=4)
    async with anyio.create_task_group() as tasks:
        for n in range(3):
            tasks.start_soon(calls.call, str(n), True, math.inf if n != 1 else 3)
            await anyio.sleep(0.001)
    assert [(round(second, 1), key) for second, key in calls.provider.asked] == [(0, "0"), (15, "2")]


def test_after_an_outage_the_window_begins_with_one_and_soon_has_half_of_what_it_had():
    queue, now, sizes = CallQueue(**OPEN), 0.0, []
    queue.lane("m").own.attempt_failed(RateLimited(), "elsewhere", now)
    for error in (RateLimited(), RateLimited(), RateLimited(), *[None] * 9):
        now += 10
        (ticket,) = queued(queue, "m", now=now)
        assert queue.admit(now) == [ticket]
        if error:
            queue.failed(ticket, error, now)
        else:
            queue.succeeded(ticket, Usage(), now)
        sizes.append(queue.lane("m").window.size)
    assert sizes == [8, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8]


def queued(queue, *names, now=0.0):
    """Return new tickets of these models, in line."""
    tickets = [Ticket(QueuePlace(n, now), name, size=100, thread=str(n)) for n, name in enumerate(names)]
    for ticket in tickets:
        queue.join(ticket)
    return tickets


def test_after_a_failure_one_call_at_a_time_goes_out_until_one_succeeds():
    queue = CallQueue(**(OPEN | {"max_parallel": 2}))
    queue.lane("m").own.attempt_failed(ModelTimeout(), "elsewhere", 0)
    a, b, c, d = queued(queue, "m", "m", "m", "m")
    assert queue.admit(0) == [a, b]
    queue.failed(a, ModelTimeout(), 1)
    queue.cancelled(b)
    assert queue.admit(1) == [], "not before the retry has said for how long to hold"
    assert queue.admit(2) == [c]
    assert queue.wakes_at(2) == math.inf
    queue.succeeded(c, Usage(), 3)
    queue.join(e := Ticket(QueuePlace(4, 3), "m"))
    assert queue.admit(3) == [d, e]


async def test_a_refusal_of_the_gate_is_not_held_against_a_model():
    gate = Gate(CallQueue(**OPEN))
    limited, other = GatedCalls(Provider(), gate=gate), GatedCalls(Provider(name="fake/two"), gate=gate)
    await limited.open_circuit(RateLimited(retry_after=300))
    await other.call("n")
    assert isinstance(other.ends["n"], RateLimited)
    assert other.provider.asked == []
    await at(302)
    assert gate.unavailable("fake/two") is None
    await other.call("m", last_resort=False)
    assert other.ends["m"] == "ok"


ERRORS = st.sampled_from(
    [RateLimited, ModelTimeout, ModelUnavailable, ModelConnection, PaymentRequired, BadRequest]
)


class AnyInterleaving(RuleBasedStateMachine):
    """Arrivals, endings, cancellations and time in any order, as the gate would report them."""

    waiting, out, away = Bundle("waiting"), Bundle("out"), Bundle("away")

    @initialize(
        parallel=st.integers(1, 5), rpm=st.sampled_from([None, 60]), tpm=st.sampled_from([None, 6000])
    )
    def begin(self, parallel, rpm, tpm):
        self.rpm, self.parallel, self.now, self.places = rpm, parallel, 0.0, itertools.count()
        self.sent = 0
        self.tickets: list[Ticket] = []
        self.queue = CallQueue(
            **(OPEN | {"max_parallel": parallel, "requests_per_minute": rpm, "tokens_per_minute": tpm})
        )

    @rule(
        model=st.sampled_from("ab"),
        size=st.integers(1, 2000),
        last_resort=st.booleans(),
        thread=st.sampled_from("xyz"),
    )
    def arrive(self, model, size, last_resort, thread):
        ticket = Ticket(QueuePlace(next(self.places), self.now), model, size, last_resort, thread=thread)
        self.tickets.append(ticket)
        self.queue.join(ticket)
        self.settle()

    def having(self, state):
        return [ticket for ticket in self.tickets if ticket.state == state]

    @rule(data=st.data())
    def cancel(self, data):
        if found := self.having("waiting") + self.having("out"):
            ticket = data.draw(st.sampled_from(found))
            if ticket.state == "out" and data.draw(st.booleans()):
                self.queue.cancelled(ticket)
            else:
                self.sent -= ticket.state == "out"
                self.queue.leave(ticket, self.now)
            self.tickets.remove(ticket)
            self.settle()

    @rule(data=st.data())
    def succeed(self, data):
        if found := self.having("out"):
            ticket = data.draw(st.sampled_from(found))
            self.queue.succeeded(ticket, Usage(data.draw(st.integers(0, 3000)), 10), self.now)
            self.tickets.remove(ticket)
            assert ticket.probe is None or ticket.probe.failure is None
            self.settle()

    @rule(data=st.data(), kind=ERRORS, retry_after=st.sampled_from([None, None, 5, 300]), again=st.booleans())
    def fail(self, data, kind, retry_after, again):
        if found := self.having("out"):
            ticket = data.draw(st.sampled_from(found))
            error = kind(retry_after=retry_after)
            self.queue.failed(ticket, error, self.now)
            if again:
                self.queue.hold(ticket.model, 5, error, self.now)
                self.settle()
                self.now += 5
                self.queue.join(ticket)
            else:
                self.queue.exhausted(ticket.model, error, self.now)
                self.tickets.remove(ticket)
            self.settle()

    @rule(seconds=st.floats(0.001, 100))
    def time_passes(self, seconds):
        self.now += seconds
        self.settle()

    def settle(self):
        """Do as the gate does after each event."""
        self.let_out()
        for ticket in self.having("waiting"):
            if self.queue.refusal(ticket, self.now, math.inf):
                self.queue.leave(ticket, self.now)
                self.tickets.remove(ticket)
        self.let_out()

    def let_out(self):
        for ticket in self.queue.admit(self.now):
            lane = self.queue.lane(ticket.model)
            self.sent += 1
            passed = [other for other in lane.queue if other.place < ticket.place]
            assert all(other.thread == lane.own.failing for other in passed), "first come, first out"
            assert ticket.probe or lane.out <= lane.window.size

    @invariant()
    def permits_and_probes_are_neither_lost_nor_doubled(self):
        out = self.having("out")
        assert len(out) <= self.parallel
        assert sum(lane.out for lane in self.queue.lanes) == len(out)
        probes = [ticket.probe for ticket in out if ticket.probe is not None]
        assert len(probes) <= 1, "one for the provider"
        for lane in self.queue.lanes:
            assert (lane.account in probes) == lane.account.probing
            assert probes.count(lane.own) == lane.own.probing
            assert sum(ticket.trial for ticket in out if ticket.model == lane.model) <= 2
            assert [t.place for t in lane.queue] == sorted(
                t.place for t in self.having("waiting") if t.model == lane.model
            )

    @invariant()
    def no_more_go_out_than_the_minute_allows(self):
        assert self.rpm is None or self.sent <= 15 + self.now + 1

    @invariant()
    def it_is_never_wedged(self):
        if self.having("out") or not self.having("waiting"):
            return
        before = len(self.having("waiting"))
        for _ in range(20):
            wakes_at = self.queue.wakes_at(self.now)
            assert self.now <= wakes_at <= self.now + 4000
            self.now = wakes_at
            self.settle()
            if len(self.having("waiting")) < before:
                return
        raise AssertionError("nobody was let out or told")


TestAnyInterleaving = AnyInterleaving.TestCase
TestAnyInterleaving.settings = settings(max_examples=150, stateful_step_count=40)


class Chaos:
    """A provider that answers, fails in every way, or hangs, by the dice."""

    def __init__(self, dice, name):
        self.dice, self.name = dice, name

    async def complete(self, request, on_event):
        await anyio.sleep(self.dice.uniform(0, 5))
        kind = self.dice.choice(
            [RateLimited, ModelTimeout, ModelUnavailable, ModelConnection, BadRequest, None, None]
        )
        if kind is not None:
            raise kind(retry_after=self.dice.choice([None, None, 3]))
        return Completion(Message("assistant", (Text("ok"),)), Usage(self.dice.randrange(5000), 50), "end")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_call_ends_and_the_gate_is_free_again(seed):
    """Through the real wrappers: random faults, and cancellations at random points of 150 calls."""

    async def turn(dice):
        gate = Gate(
            CallQueue(**(OPEN | {"max_parallel": 3, "requests_per_minute": 120, "tokens_per_minute": 60_000}))
        )
        groups = [GatedCalls(Chaos(dice, f"fake/{n}"), LlmRetry(), gate) for n in range(2)]
        async with anyio.create_task_group() as tasks:
            for n in range(150):
                within = dice.choice([math.inf, 900, dice.uniform(0, 60)])
                tasks.start_soon(dice.choice(groups).call, str(n), dice.random() < 0.7, within)
                await anyio.sleep(dice.choice([0, 0.1, 2]))
        for calls in groups:
            assert all(name in calls.ends or scope.cancelled_caught for name, scope in calls.scopes.items())
            for events in calls.events.values():
                told = [type(event) for event in events if isinstance(event, Waiting | Resumed)]
                assert Resumed not in told[:1]
        assert (waiting(gate), running(gate)) == (0, 0)
        with anyio.fail_after(2000):
            await anyio.sleep(700)
            for name in ("fake/0", "fake/1"):
                calls = GatedCalls(Provider(name=name), LlmRetry(), gate)
                await calls.call("last")
                assert calls.ends["last"] == "ok"

    dice = rng.Random(seed)
    anyio.run(turn, dice, backend_options=virtual_loop(seed))
