import subprocess
import sys
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices import Usage as Counted
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice, TieredPrices
from hypothesis import given
from hypothesis import strategies as st

from bot.config.settings import ModelFacts, Price
from bot.llm.catalog import Catalog, _by_list, most
from bot.ports.model import ModelInfo, Usage

M = 1_000_000
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def catalog(models=None, prices=None, free=()) -> Catalog:
    return Catalog(models or {}, prices or {}, free, lambda: NOW)


def cost(known: Catalog, name: str, usage: Usage) -> float | None:
    rate = known.rate(name)
    return rate and rate(usage)


@pytest.mark.parametrize(
    ("name", "usage", "usd"),
    [
        ("anthropic/claude-sonnet-5-5", Usage(input=M), 2.0),
        ("anthropic/claude-sonnet-5-5", Usage(output=M), 10.0),
        ("anthropic/claude-sonnet-5-5", Usage(cache_read=M), 0.1),
        ("anthropic/claude-sonnet-5-5", Usage(cache_write=M), 2.5),
        ("anthropic/claude-sonnet-5-5", Usage(cache_write=M, cache_write_1h=400_000), 3.1),
        ("anthropic/claude-haiku-5-5", Usage(input=100_000), 0.01),
        ("anthropic/claude-haiku-5-5", Usage(input=1000, cache_read=199_000), 0.0005 + 0.00995),
        ("openai/gpt-6.1-terra", Usage(input=100_000, output=1000), 0.105),
        ("openai/gpt-5.5", Usage(cache_write=100_000), 0.5),
    ],
)
def test_a_call_costs_what_the_price_list_says(name, usage, usd):
    assert cost(catalog(), name, usage) == pytest.approx(usd)


def test_the_settings_price_wins_and_a_missing_cache_price_counts_as_input():
    known = catalog(prices={"anthropic/claude-sonnet-5-5": Price(input=1.0, output=2.0, cache_read=0.5)})
    assert cost(known, "anthropic/claude-sonnet-5-5", Usage(M, M, M, M)) == pytest.approx(1 + 2 + 0.5 + 1)


@pytest.mark.parametrize(
    ("given", "usd"),
    [
        ({}, 2.0),
        ({"cache_write": 1.25}, 2.0),
        ({"cache_write": 3.0}, 3.0),
        ({"cache_write": 1.25, "cache_write_1h": 1.5}, 1.5),
    ],
)
def test_what_is_kept_for_an_hour_has_a_price_of_its_own_and_is_never_counted_too_low(given, usd):
    known = catalog(prices={"set/x": Price(input=1.0, output=5.0, **given)})
    assert cost(known, "set/x", Usage(cache_write=M, cache_write_1h=M)) == pytest.approx(usd)
    usual = given.get("cache_write", 1.0)
    assert cost(known, "set/x", Usage(cache_write=2 * M, cache_write_1h=M)) == pytest.approx(usd + usual)


@pytest.mark.parametrize("name", ["openai/gpt-9-nothing", "nobody/x", "openai/whisper-1", "x", ""])
def test_a_price_that_is_not_known_is_none(name):
    assert cost(catalog(), name, Usage(10)) is None
    assert catalog().rate(name) is None


def test_rules_and_what_the_settings_call_free_cost_nothing():
    assert cost(catalog(), "offline/demo", Usage(M, M)) == 0
    assert cost(catalog(free={"ollama"}), "ollama/llama3.1", Usage(M, M)) == 0
    assert cost(catalog(), "ollama/llama3.1", Usage(M, M)) is None
    assert cost(catalog(free={"openai"}), "openai/gpt-5.5", Usage(M)) == 0, (
        "their word goes before the list's"
    )
    priced = catalog(prices={"ollama/x": Price(input=1.0, output=1.0)}, free={"ollama"})
    assert cost(priced, "ollama/x", Usage(M)) == 1


@pytest.mark.parametrize("name", ["ollama/gpt-oss:120b-cloud", "ollama/glm-4.6:cloud"])
def test_a_model_that_ollama_passes_on_to_its_cloud_is_not_free(name):
    assert cost(catalog(free={"ollama"}), name, Usage(M)) is None
    priced = catalog(prices={name: Price(input=0, output=0)}, free={"ollama"})
    assert cost(priced, name, Usage(M)) == 0


@pytest.mark.parametrize(
    "name", ["anthropic/claude-sonnet-5-5", "anthropic/claude-haiku-5-5", "openai/gpt-5.5", "set/x"]
)
@given(
    kinds=st.tuples(*[st.integers(0, 300_000)] * 4),
    hour=st.floats(0, 1),
    extra=st.integers(0, 50_000),
    room=st.integers(0, 1000),
)
def test_no_call_costs_more_than_its_most(name, kinds, hour, extra, room):
    known = catalog(prices={"set/x": Price(input=1.0, output=2.0, cache_read=9.0, cache_write=0.1)})
    usage = Usage(*kinds, cache_write_1h=int(kinds[3] * hour))
    highest = most(known.rate(name), usage.prompt + extra, usage.output + room)
    assert cost(known, name, usage) <= highest + 1e-12


@given(st.tuples(*[st.integers(-1000, 1000)] * 5))
def test_a_server_that_counts_nonsense_never_gives_money_back(kinds):
    for name in ("anthropic/claude-sonnet-5-5", "openai/gpt-6.1-terra", "set/x"):
        known = catalog(prices={"set/x": Price(input=1.0, output=2.0)})
        assert cost(known, name, Usage(*kinds)) >= 0


def test_no_listed_price_falls_with_the_length_of_the_prompt():
    """`most` looks at the longest prompt only."""
    seen = 0
    for provider in get_snapshot().providers:
        if provider.id not in ("anthropic", "openai"):
            continue
        for model in provider.models:
            dated = (
                [model.prices] if isinstance(model.prices, ModelPrice) else [c.prices for c in model.prices]
            )
            for value in (value for prices in dated for value in vars(prices).values()):
                if isinstance(value, TieredPrices):
                    steps: list[Decimal] = [value.base, *(tier.price for tier in value.tiers)]
                    assert steps == sorted(steps), model.id
                    seen += 1
    assert seen > 10


PRICED = [
    prices
    for provider in get_snapshot().providers
    for model in provider.models
    if provider.id in ("anthropic", "google", "openai", "openrouter")
    for prices in [model.get_prices(NOW)]
    if prices.input_mtok is not None and prices.output_mtok is not None
]


@given(
    st.sampled_from(PRICED),
    st.tuples(*[st.integers(0, 600_000)] * 3),
    st.integers(0, 50_000),
    st.floats(0, 1),
)
def test_a_call_costs_what_the_library_of_the_list_makes_it(prices, prompt, output, hour):
    usage = Usage(prompt[0], output, *prompt[1:], cache_write_1h=int(prompt[2] * hour))
    counted = Counted(
        input_tokens=usage.prompt,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        cache_write_1h_tokens=usage.cache_write_1h,
        output_tokens=usage.output,
    )
    assert _by_list(prices)(usage) == float(prices.calc_price(counted)["total_price"])


def test_a_dated_price_is_that_of_the_moment_the_call_began():
    moment = [datetime(2020, 1, 1, tzinfo=UTC)]
    known = Catalog({}, {}, (), lambda: moment[0])
    rate = known.rate("openai/o3")
    before = rate(Usage(M))
    moment[0] = NOW
    assert rate(Usage(M)) == before > cost(known, "openai/o3", Usage(M))


def test_the_window_comes_from_the_list_and_the_settings_know_better():
    assert catalog().info("anthropic/claude-sonnet-5-5").context_window == M
    known = catalog(models={"anthropic/claude-sonnet-5-5": ModelFacts(context_window=5, vision=False)})
    assert known.info("anthropic/claude-sonnet-5-5") == ModelInfo(
        "anthropic/claude-sonnet-5-5", vision=False, context_window=5
    )


def test_an_unknown_model_can_do_everything_and_has_no_window():
    assert catalog().info("nobody/x") == ModelInfo("nobody/x")
    assert catalog().info("offline/demo") == ModelInfo("offline/demo", efforts=())


def test_a_family_that_lacks_something_is_known_unless_the_settings_say_otherwise():
    assert not catalog().info("openai/gpt-3.5-turbo").vision
    assert not catalog(free={"ollama"}).info("ollama/gemma2:9b").tools
    assert catalog(models={"ollama/gemma2:9b": ModelFacts(tools=True)}).info("ollama/gemma2:9b").tools


def test_loading_from_many_threads_at_once_is_fine():
    known = catalog()
    threads = [threading.Thread(target=known.load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cost(known, "openai/gpt-5.5", Usage(1000)) == pytest.approx(0.005)


LOADING = """
import sys, threading
from importlib.abc import MetaPathFinder

class Watch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "genai_prices":
            where.add("loop" if threading.current_thread() is threading.main_thread() else "worker")

where = set()
sys.meta_path.insert(0, Watch())

import anyio
from pathlib import Path
from tests.fakes import openai as o
from tests.serving import compatible, serving

async def main():
    async with o.FakeOpenAI(lambda _: o.chat_answer(o.Text("hello"))) as fake:
        given = {"model": sys.argv[2], "providers": compatible("near", fake.base_url)}
        async with serving(Path(sys.argv[1]), given) as seat:
            assert await seat.say("hi")
            assert seat.outcomes["m1"] == "answered"

anyio.run(main)
print(*sorted(where))
"""


@pytest.mark.parametrize(("model", "where"), [("near/llama3.1", "worker"), ("offline/demo", "")])
def test_the_price_list_is_read_in_a_worker_and_only_where_it_is_needed(tmp_path, model, where):
    told = subprocess.run(
        [sys.executable, "-c", LOADING, str(tmp_path), model],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert told.stdout == f"{where}\n"
