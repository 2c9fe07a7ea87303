"""Slack's limits in virtual time: never more than allowed, in order, and live edits never in the way of an answer."""

from itertools import pairwise

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.loop import virtual_time
from threads.errors import Fenced
from transports.slack.api.rate_limits import (
    CHANNEL,
    RATES,
    TIER_4,
    TOLERANCE,
    Bucket,
    Rate,
    RateLimits,
    rate_of,
)

RATE = st.integers(2, 120).flatmap(lambda n: st.builds(Rate, st.just(n), st.integers(1, n - 1)))
GAP = st.one_of(st.just(0.0), st.floats(0, 2), st.floats(0, 200))


anyio_backend = virtual_time


async def taken_at(limits, method, times, channel="", *, urgent=True):
    """Have so many callers wait; return when each of them was served, in the order of asking."""
    at = [None] * times

    async def one(number):
        await limits.take(method, channel, urgent=urgent)
        at[number] = anyio.current_time() - 1000

    async with anyio.create_task_group() as tasks:
        for number in range(times):
            tasks.start_soon(one, number)
            await anyio.lowlevel.checkpoint()
    return at


# The bucket: values in, values out


@given(
    RATE, st.lists(st.tuples(GAP, st.sampled_from(("take", "try", "pause")), st.floats(0, 90)), max_size=60)
)
def test_no_window_holds_more_than_the_burst_and_what_came_in_since(rate, steps):
    now, bucket, granted = 50.0, Bucket(rate, 50.0), []
    for gap, step, seconds in steps:
        now += gap
        if step == "pause":
            bucket.pause(now, seconds)
        elif not bucket.wait(now, beyond=rate.reserve if step == "try" else 0):
            bucket.take(now)
            granted.append(now)
    for first, begin in enumerate(granted):
        for last in range(first, len(granted)):
            width = granted[last] - begin
            assert last - first + 1 <= rate.burst + rate.per_second * width + 2 * TOLERANCE


@given(RATE)
def test_no_minute_holds_more_than_slack_allows(rate):
    now, bucket, granted = 0.0, Bucket(rate, 0.0), 0
    while (now := now + bucket.wait(now)) < 60:
        bucket.take(now)
        granted += 1
    assert granted <= rate.per_minute
    assert granted >= rate.per_minute - 1


@given(RATE.filter(lambda rate: rate.reserve), st.lists(st.tuples(GAP, st.booleans()), max_size=60))
def test_live_calls_delay_nobody_beyond_a_bucket_that_holds_the_reserve_alone(rate, steps):
    now, shared = 0.0, Bucket(rate, 0.0)
    alone = Bucket(Rate(rate.per_minute - rate.burst + rate.reserve, rate.reserve), 0.0)
    for gap, live in steps:
        now += gap
        if live:
            if not shared.wait(now, beyond=rate.reserve):
                shared.take(now)
        else:
            assert shared.wait(now) <= alone.wait(now) + 1e-3
            now += alone.wait(now)
            shared.take(now)
            alone.take(now)


@given(RATE, GAP)
def test_an_answer_after_any_number_of_live_calls_waits_for_one_token_at_most(rate, gap):
    bucket = Bucket(rate, 0.0)
    for _ in range(rate.burst + 5):
        if not bucket.wait(gap, beyond=rate.reserve):
            bucket.take(gap)
    assert bucket.wait(gap) <= (0 if rate.reserve else 1 / rate.per_second + 1e-9)


@given(RATE, st.floats(0.1, 300))
def test_after_a_pause_one_call_goes_and_the_next_one_waits_for_its_token(rate, seconds):
    bucket = Bucket(rate, 0.0)
    bucket.pause(0.0, seconds)
    bucket.pause(0.0, seconds / 2)  # a shorter one changes nothing
    assert bucket.wait(0.0) == pytest.approx(seconds)
    bucket.take(seconds)
    assert bucket.wait(seconds) == pytest.approx(1 / rate.per_second)


def test_a_process_begins_with_more_and_then_has_a_burst_like_any_other():
    rate = Rate(50, 10, first=20)
    bucket = Bucket(rate, 0.0)
    for _ in range(30):
        assert bucket.wait(0.0) == 0.0
        bucket.take(0.0)
    assert bucket.wait(0.0) == pytest.approx(1 / rate.per_second)
    assert bucket.wait(3600.0, beyond=rate.burst - 1) == 0.0
    assert bucket.wait(3600.0, beyond=rate.burst) > 0


def test_the_table_stays_within_what_slack_documents():
    assert {rate_of(method).per_minute for method in ("chat.startStream", "chat.stopStream")} == {20}
    assert rate_of("chat.appendStream").per_minute == rate_of("users.info").per_minute == 100
    fifty = ("chat.update", "chat.delete", "conversations.history", "conversations.replies", "reactions.add")
    assert {rate_of(method).per_minute for method in (*fifty, "agents.sessions.setStatus")} == {50}
    assert rate_of("assistant.threads.setStatus").per_minute == 60
    assert CHANNEL.per_second <= 1
    assert CHANNEL.burst == 1
    assert all(rate.burst < rate.per_minute for rate in (*RATES.values(), TIER_4))


# The line


async def test_a_hundred_callers_are_served_in_order_and_none_starves():
    rate = rate_of("chat.update")
    at = await taken_at(RateLimits(), "chat.update", 100)
    assert at == sorted(at)
    assert at[: rate.burst] == [0.0] * rate.burst
    assert at[-1] == pytest.approx((100 - rate.burst) / rate.per_second, abs=1e-3)


async def test_a_live_call_is_refused_while_somebody_waits_and_at_the_reserve():
    limits, rate = RateLimits(), rate_of("chat.update")
    granted = 0
    while await limits.try_take("chat.update"):
        granted += 1
    assert granted == rate.burst - rate.reserve
    assert await taken_at(limits, "chat.update", rate.reserve) == [0.0] * rate.reserve
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(limits.take, "chat.update")
        for _ in range(30):
            await anyio.sleep(0.1)
            assert not await limits.try_take("chat.update")
    await anyio.sleep(60)
    assert await limits.try_take("chat.update")


async def test_a_live_call_never_takes_the_token_that_somebody_waits_for_also_where_nothing_is_reserved():
    limits, stolen = RateLimits(), []

    async def steal(channel):
        await anyio.sleep(1 / CHANNEL.per_second)  # the instant in which the token comes
        stolen.append(await limits.try_take("chat.postMessage", channel))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            await limits.take("chat.postMessage", f"C{number}")
            tasks.start_soon(steal, f"C{number}")
            tasks.start_soon(limits.take, "chat.postMessage", f"C{number}")
    assert stolen == [False] * 20


async def test_a_waiter_that_is_cancelled_gives_its_place_back():
    limits, rate = RateLimits(), rate_of("chat.update")
    await taken_at(limits, "chat.update", rate.burst)
    start = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as first:
            tasks.start_soon(limits.take, "chat.update")
            await anyio.sleep(0.01)
            with anyio.move_on_after(0.5):
                await limits.take("chat.update")
            first.cancel()
        await limits.take("chat.update")
        assert anyio.current_time() - start == pytest.approx(2 / rate.per_second, abs=1e-3)
    with anyio.move_on_after(0.2) as head:
        await limits.take("chat.update")
    assert head.cancelled_caught
    await limits.take("chat.update")
    assert anyio.current_time() - start == pytest.approx(3 / rate.per_second, abs=1e-3)


async def test_the_patient_let_the_urgent_pass_but_do_not_starve():
    limits, order = RateLimits(), []
    rate = rate_of("conversations.replies")
    await taken_at(limits, "conversations.replies", rate.burst + rate.first)

    async def one(name, urgent):
        await limits.take("conversations.replies", urgent=urgent)
        order.append(name)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(one, f"patient {number}", False)
            await anyio.sleep(0.01)
        for number in range(3):
            tasks.start_soon(one, f"urgent {number}", True)
            await anyio.sleep(0.01)
    assert order == ["patient 0", "urgent 0", "urgent 1", "urgent 2", "patient 1", "patient 2"]


async def test_a_pause_holds_every_caller_also_those_who_wait_already():
    limits = RateLimits()
    await taken_at(limits, "chat.update", rate_of("chat.update").burst)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(limits.take, "chat.update")
        await anyio.sleep(0.5)
        limits.pause("chat.update", 30)
        assert not await limits.try_take("chat.update")
        assert await limits.try_take("chat.appendStream")
    assert anyio.current_time() == pytest.approx(1030.5)


async def test_a_pause_of_one_channel_leaves_the_others_alone():
    limits = RateLimits()
    limits.pause("chat.postMessage", 7, "C1")
    assert await taken_at(limits, "chat.postMessage", 1, "C2") == [0.0]
    assert await taken_at(limits, "chat.postMessage", 1, "C1") == [pytest.approx(7)]


async def test_nobody_is_held_for_longer_than_a_pause_may_be():
    limits = RateLimits()
    limits.pause("chat.update", 1e12)
    assert await taken_at(limits, "chat.update", 1) == [120.0]


async def test_posts_go_out_one_a_second_in_a_channel_and_channels_do_not_wait_for_each_other():
    limits = RateLimits()
    at = await taken_at(limits, "chat.postMessage", 5, "C1")
    assert all(later - earlier >= 1 for earlier, later in pairwise(at))
    assert at[-1] < 5
    assert await taken_at(limits, "chat.postMessage", 1, "C2") == [pytest.approx(at[-1], abs=1e-3)]


async def test_a_thousand_posts_go_out_as_they_were_asked_for_a_second_apart_in_a_crowded_channel():
    limits, sent, begun = RateLimits(), [], anyio.current_time()

    async def post(number):
        await limits.take("chat.postMessage", f"C{number if number % 10 else 0}")
        sent.append((number, anyio.current_time() - begun))

    async with anyio.create_task_group() as tasks:
        for number in range(1000):
            tasks.start_soon(post, number)
            await anyio.lowlevel.checkpoint()
    crowded = [at for number, at in sent if number % 10 == 0]
    assert all(later - earlier >= 1 for earlier, later in pairwise(crowded))
    others = [number for number, _ in sent if number % 10]
    assert others == sorted(others)
    least = 990 // rate_of("chat.postMessage").per_minute * 60
    assert sent[990][1] <= 1.2 * least


async def test_posts_to_many_channels_stay_within_what_the_workspace_may():
    limits, at = RateLimits(), []

    async def post(channel):
        await limits.take("chat.postMessage", channel)
        at.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        for number in range(300):
            tasks.start_soon(post, f"C{number}")
    within = max(sum(1 for other in at if start <= other < start + 60) for start in at)
    assert within <= rate_of("chat.postMessage").per_minute


@pytest.mark.parametrize("method", ["chat.appendStream", "chat.update"])
@pytest.mark.parametrize("sharers", [1, 2, 7, 40])
async def test_live_drafts_that_keep_their_spacing_are_hardly_ever_refused(method, sharers):
    limits, granted, asked = RateLimits(), [0] * sharers, 0
    space = limits.spacing(method, sharers)
    assert space >= (1.5 if method == "chat.update" else 1.0)
    for _ in range(20):
        for number in range(sharers):  # all of them in the same instant, the worst that can be
            asked += 1
            granted[number] += await limits.try_take(method)
            await anyio.sleep(space / sharers)
    assert sum(granted) == asked


def test_the_more_drafts_are_live_the_rarer_each_may_flush():
    spaces = [RateLimits().spacing("chat.appendStream", sharers) for sharers in range(1, 50)]
    assert spaces == sorted(spaces)
    assert spaces[0] == 1.0
    assert 0.6 * 49 <= spaces[-1] < 0.75 * 49


async def test_a_pause_outlasts_calls_in_a_thousand_other_channels():
    limits = RateLimits()
    limits.pause("chat.postMessage", 100, "C-paused")
    for number in range(1_000):
        await limits.try_take("chat.postMessage", f"C{number}")
    assert await taken_at(limits, "chat.postMessage", 1, "C-paused") == [pytest.approx(100)]


class AllWorkers:
    """The rates of all workers, as a database keeps them: who takes too much leaves a debt."""

    def __init__(self):
        self.levels = {}

    async def take_token(self, name, per_second, burst):
        level = self.levels[name] = self._level(name, per_second, burst) - 1, anyio.current_time()
        return max(0.0, -level[0] / per_second)

    async def try_token(self, name, per_second, burst, reserve):
        left = self._level(name, per_second, burst) - 1
        if left >= reserve:
            self.levels[name] = left, anyio.current_time()
        return left >= reserve

    async def ensure_ownership(self):
        """Own every thread."""

    def _level(self, name, per_second, burst):
        level, at = self.levels.get(name, (burst, 0.0))
        return min(burst, level + (anyio.current_time() - at) * per_second)


async def test_a_worker_that_lost_its_thread_while_a_call_waited_shows_nothing():
    class Lost(AllWorkers):
        async def take_token(self, *_):
            return 61.0

        async def ensure_ownership(self):
            assert anyio.current_time() > 60, "asked at the end of the wait"
            raise Fenced

    limits = RateLimits(shared=Lost(), workers=lambda: 2)
    for method in ("chat.postMessage", "chat.update"):
        with pytest.raises(Fenced):
            await limits.take(method, "C1")
    await limits.take("reactions.add")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("method", ["chat.update", "chat.startStream", "chat.postMessage"])
async def test_the_calls_of_all_workers_use_the_whole_rate_and_fit_into_every_minute(method, workers):
    shared, at = AllWorkers(), []

    async def call(limits):
        while anyio.current_time() < 1300:
            await limits.take(method, "C1")
            at.append(anyio.current_time())

    async def try_call(limits):
        while anyio.current_time() < 1300:
            if method != "chat.postMessage" and await limits.try_take(method, "C1"):
                at.append(anyio.current_time())
            await anyio.sleep(0.1)

    async with anyio.create_task_group() as tasks:
        for _ in range(workers):
            limits = RateLimits(shared=shared, workers=lambda: workers)
            tasks.start_soon(call, limits)
            tasks.start_soon(try_call, limits)
    at.sort()
    busiest = max(sum(begin <= other < begin + 60 for other in at) for begin in at)
    most = CHANNEL.per_minute if method == "chat.postMessage" else rate_of(method).per_minute
    assert most - 2 <= busiest <= most


async def test_a_live_call_leaves_the_reserve_to_the_answers_of_all_workers():
    shared, rate = AllWorkers(), rate_of("chat.update")
    one, other = (RateLimits(shared=shared, workers=lambda: 2) for _ in range(2))
    granted = [await each.try_take("chat.update") for each in (one, other) * rate.burst]
    assert sum(granted) == rate.burst - rate.reserve
    assert await taken_at(one, "chat.update", rate.reserve) == [0.0] * rate.reserve


async def test_a_worker_that_is_alone_asks_nobody_and_brings_its_count_along():
    shared, workers, rate = AllWorkers(), [1], rate_of("chat.update")
    one, other = (RateLimits(shared=shared, workers=lambda: workers[0]) for _ in range(2))
    await taken_at(one, "chat.update", rate.burst - 1)
    assert not shared.levels
    workers[0] = 2
    assert await taken_at(one, "chat.update", 1) == [0.0]
    assert await taken_at(other, "chat.update", 1) != [0.0]


async def test_many_threads_are_looked_into_at_once_after_a_rest_of_all_workers():
    shared, rate = AllWorkers(), rate_of("conversations.replies")
    at = [
        *await taken_at(
            RateLimits(shared=shared, workers=lambda: 2), "conversations.replies", rate.burst + rate.first
        ),
        *await taken_at(RateLimits(shared=shared, workers=lambda: 2), "conversations.replies", 1),
    ]
    assert at[:-1] == [0.0] * (rate.burst + rate.first)
    assert at[-1] > 0


async def test_an_urgent_call_passes_the_patient_ones_of_all_workers_but_their_first():
    shared, order = AllWorkers(), []
    one, other = (RateLimits(shared=shared, workers=lambda: 2) for _ in range(2))
    rate = rate_of("chat.update")
    await taken_at(one, "chat.update", rate.burst)

    async def call(limits, name, urgent):
        await limits.take("chat.update", urgent=urgent)
        order.append(name)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(call, (one, other)[number % 2], "patient", False)
        await anyio.sleep(0.1)
        tasks.start_soon(call, one, "urgent", True)
    assert order.index("urgent") <= 3  # one here, and of the other one while that goes out and one afterwards
