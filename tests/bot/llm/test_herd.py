"""A thousand calls against a provider that refuses all of them for five minutes, in virtual time."""

import pytest

from bot.config.settings import LlmRetry, RateLimitedRetry
from tests.bot.llm.herd import MIXED, OVERLOADED_20, Provider, gated, refusals, stampede
from tests.sim.loop import virtual_time

AT_ONCE = [0.0] * 1000
OVER_TEN_MINUTES = [n * 0.6 for n in range(1000)]
WIDEST = 40
"""The gate's limit: as many calls of one second each at once."""
OUTAGES = [
    pytest.param(MIXED, id="all mixed"),
    *(pytest.param((one,), id=f"{one.args} {one.keywords}", marks=pytest.mark.slow) for one in MIXED),
]


anyio_backend = virtual_time


def check(herd):
    assert herd.calls_per_answer <= 1.2, f"{herd.answered} answered, {herd.calls_per_answer:.3f} calls each"
    assert herd.in_order
    assert herd.peak() <= WIDEST


@pytest.mark.parametrize("kinds", OUTAGES)
async def test_those_who_may_wait_and_retry_long_enough_are_all_answered_in_order(kinds):
    provider = Provider(refusals(*kinds))
    patient = LlmRetry(max_retries=40, rate_limited=RateLimitedRetry(attempts=40))
    herd = await stampede(provider, gated(provider, patient, max_parallel=WIDEST, max_wait_s=3600.0), AT_ONCE)
    assert herd.answered == 1000
    check(herd)


@pytest.mark.parametrize("kinds", OUTAGES)
async def test_with_the_default_retries_only_those_who_tried_them_all_are_told(kinds):
    provider = Provider(refusals(*kinds))
    herd = await stampede(provider, gated(provider, max_parallel=WIDEST, max_wait_s=3600.0), AT_ONCE)
    assert all(error.retryable for error in herd.told), "the provider's own last word, not the gate's"
    assert len(herd.told) <= 300 / (4 * 5) + 5, "four tries each, and one call in five seconds"
    assert herd.answered + len(herd.told) == 1000
    check(herd)


@pytest.mark.parametrize("kinds", OUTAGES)
async def test_with_the_default_patience_everybody_is_answered_or_told(kinds):
    provider = Provider(refusals(*kinds))
    herd = await stampede(provider, gated(provider, max_parallel=WIDEST), OVER_TEN_MINUTES)
    assert herd.answered + len(herd.told) == 1000
    assert herd.answered >= 600, "all who came when the provider was back, and more"
    check(herd)
    arrived_late = [fate for fate, at in zip(herd.fates, OVER_TEN_MINUTES, strict=True) if at > 300 + 20]
    assert all(fate.error is None for fate in arrived_late), "soon after the outage it is over for us too"


async def test_a_limit_per_minute_holds_after_the_outage():
    provider = Provider(refusals(OVERLOADED_20))
    model = gated(provider, max_parallel=256, requests_per_minute=600, max_wait_s=3600.0)
    herd = await stampede(provider, model, AT_ONCE)
    assert herd.answered >= 1000 - 300 / (4 * 20) - 1, "one call after each Retry-After, four tries each"
    late = [at for at in provider.asked if at >= provider.opens_at]
    assert herd.peak() <= 150 + 10, "a quarter of the minute's worth in reserve, and ten a second"
    assert len(late) - 150 <= 10 * (late[-1] - provider.opens_at) + 1
