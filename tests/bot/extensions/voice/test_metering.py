"""What a transcription is charged: never less than it may have cost, and never a guess under a hard budget."""

import contextlib
from functools import partial

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.budget.budgets import Policy
from bot.config.settings import Price
from bot.extensions.voice.metering import MeteredTranscription, completed, longest, of_seconds
from bot.extensions.voice.prices import audio_rate
from bot.extensions.voice.recording import AudioUsage, TranscriptionRequest
from bot.llm.catalog import Catalog
from bot.ports.errors import BadRequest, BudgetExceeded, ModelTimeout, PriceUnknown
from tests.bot.llm.test_metering import Fake, accounting, answers, fails
from tests.tool_context import unheard
from threads.model import File

COUNTS = st.builds(
    AudioUsage,
    input=st.integers(0, 10**6),
    output=st.integers(0, 10**6),
    audio_tokens=st.integers(0, 10**6),
    seconds=st.floats(0, 10**6),
)
MINUTE = TranscriptionRequest("", (), file=File("a.ogg", size=60_000), read=None)
"""A recording of at most a minute."""


def metered(kept, play, price=0.006):
    rate = partial(audio_rate, Catalog({}, {}), "fake/ears", price)
    return MeteredTranscription(Fake(play, name="fake/ears"), kept.account, rate)


@pytest.mark.parametrize(
    ("play", "charged"),
    [
        (answers(AudioUsage(seconds=30)), 3_000),
        (answers(AudioUsage(input=50, audio_tokens=50, output=9)), 500),
        (answers(AudioUsage()), 6_000),
        (fails(BadRequest()), 0),
        (fails(ModelTimeout(), metered=AudioUsage()), 6_000),
    ],
)
async def test_a_call_is_charged_by_its_seconds_and_without_a_count_in_full(play, charged):
    async with accounting(Policy(True, 0.8, {"thread": 10_000})) as kept:
        with contextlib.suppress(BadRequest, ModelTimeout):
            await metered(kept, play).complete(MINUTE, unheard)
        reserve, commit = await kept.records()
        assert kept.used == charged
    assert (reserve.micros, commit.micros) == (6_000, charged)


async def test_a_call_that_may_cost_too_much_does_not_go_out():
    async with accounting(Policy(True, 0.8, {"turn": 5_999})) as kept:
        model = metered(kept, answers(AudioUsage()))
        with pytest.raises(BudgetExceeded):
            await model.complete(MINUTE, unheard)
    assert model.model.requests == []


async def test_only_a_hard_budget_refuses_an_unknown_price():
    async with accounting() as kept:
        with pytest.raises(PriceUnknown, match="usd_per_minute"):
            await metered(kept, answers(AudioUsage()), None).complete(MINUTE, unheard)
    async with accounting(Policy(False, 0.8, {"turn": 1})) as kept:
        await metered(kept, answers(AudioUsage(seconds=3)), None).complete(MINUTE, unheard)
        await anyio.lowlevel.checkpoint()
        assert kept.account.spent_usd is None


@given(COUNTS, st.integers(0, 25_000_000))
def test_a_count_of_tokens_or_seconds_gives_the_other_and_no_count_the_most(counted, size):
    found, most = completed(counted, longest(size)), longest(size)
    if not counted.input and not counted.seconds:
        assert found == most
    elif counted.input:
        assert found.seconds > 0
        assert 0 < found.audio_tokens <= found.input
        assert found.output == counted.output
    else:
        assert found == of_seconds(counted.seconds)


@pytest.mark.parametrize(
    ("name", "prices", "price", "usd"),
    [
        ("openai/whisper-1", {}, None, 0.006),
        ("openai/gpt-4o-transcribe", {}, None, 600 * 6e-6 + 600 * 10e-6),
        ("openai/gpt-4o-transcribe", {}, 0.5, 0.5),
        ("openai/whisper-1", {"openai/whisper-1": Price(input=1.0, output=2.0)}, None, 600 * 3e-6),
        ("local/anything", {}, None, 0.0),
        ("openai/unheard-of", {}, None, None),
        ("openai/gpt-6.1-terra", {}, None, None),
    ],
)
def test_a_minute_costs_what_the_settings_or_the_list_say(name, prices, price, usd):
    rate = audio_rate(Catalog({}, prices, {"local"}), name, price)
    assert (rate and rate(of_seconds(60))) == (usd if usd is None else pytest.approx(usd))
