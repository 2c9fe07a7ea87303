"""What a thread of 50 turns costs, against a provider whose prompt cache is simulated from the bytes it gets.

1,500 tokens of system prompt and tools, 300 in and 400 out a turn, one a minute: the thread of the research notes.
*All hits* is what it costs when each prompt but its new part is read from a cache written for five minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
from genai_prices import Usage as Counted
from genai_prices import calc_price

from benchmarks.figures import Conditions, Figure
from bot.config.settings import StreamTimeouts
from bot.extensions.anthropic.messages import AnthropicModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.adapters.http_client import SharedHttp
from bot.ports.model import Model, Request, ToolSpec, Usage
from tests.fakes import anthropic, openai
from tests.fakes.http import FakeHttp, Reply, Seen
from tests.fakes.prompt_cache import AnthropicPromptCache, OpenAIPromptCache
from threads.model import Message, Text, TurnEvent

TURNS = 50
PACE_S = 60.0
"""Seconds between two turns, on the provider's clock alone."""
TARGET = 1.1
MODELS = (
    "anthropic/claude-sonnet-5-5",
    "anthropic/claude-haiku-5-5",
    "anthropic/claude-opus-5-5",
    "openai/gpt-6.1-sol",
    "openai/gpt-6.1-terra",
)
TOOL = ToolSpec("look", "d" * 1984, {"type": "object", "properties": {}})
SYSTEM = "s" * 4012
"""With `TOOL` 6,000 characters, which the simulated providers count as 1,500 tokens."""

Price = Callable[[Usage], float]


def measure(conditions: Conditions) -> Iterator[Figure]:
    turns = 20 if conditions.quick else TURNS
    within = 0
    for name in MODELS:
        used = anyio.run(play, name, turns)
        price = priced(name)
        cost, best = sum(map(price, used)), sum(map(price, all_hits(used)))
        kept = sum(map(price, all_hits(used, "1h"))) if name.startswith("anthropic") else best
        within += cost <= TARGET * best
        share = sum(usage.cache_read for usage in used) / sum(usage.prompt for usage in used)
        yield Figure(
            f"{name}, {turns} turns",
            cost,
            "USD",
            note=f"all hits {best:.3f} USD; {share:.0%} of prompts read",
        )
        yield Figure("  to all hits", cost / best, "x", note="written for 5 min (30 min at OpenAI)")
        yield Figure("  to all hits at its own lifetime", cost / kept, "x", at_most=TARGET)
    yield Figure(f"models within {TARGET} of all hits", within, at_least=2)


async def play(name: str, turns: int, pace_s: float = PACE_S) -> list[Usage]:
    """Hold the thread with the model *name*; return what each call used, as its adapter read it."""
    provider, _, model = name.partition("/")
    used: list[Usage] = []
    messages: list[Message] = []
    http = SharedHttp()
    async with _fake(provider, pace_s) as fake:
        asked = _adapter(provider, model, fake, http)
        for turn in range(turns):
            messages.append(Message("user", (Text(f"{turn:<4}".ljust(1200, "q")),)))
            request = Request(SYSTEM, tuple(messages), (TOOL,), cache_key="thread")
            done = await asked.complete(request, _unheard)
            messages.append(done.message)
            used.append(done.usage)
    await http.aclose()
    return used


async def _unheard(event: TurnEvent) -> None:
    """Take no notice."""


def _adapter(provider: str, model: str, fake: FakeHttp, http: SharedHttp) -> Model:
    kind = AnthropicModel if provider == "anthropic" else OpenAIResponsesModel
    timeouts = StreamTimeouts()
    return kind(provider, model, api_key=lambda: "k", base_url=fake.base_url, http=http, timeouts=timeouts)


def _fake(provider: str, pace_s: float) -> FakeHttp:
    clock = iter(range(1_000_000))
    if provider == "anthropic":
        marked = AnthropicPromptCache()

        def messages(seen: Seen) -> Reply:
            usage = marked.usage(seen.json, next(clock) * pace_s)
            return anthropic.answer(
                anthropic.Text("a" * 1600, 1), usage=usage, end_usage={"output_tokens": 400}
            )

        return anthropic.FakeAnthropic(messages)
    automatic = OpenAIPromptCache()

    def responses(seen: Seen) -> Reply:
        usage = {**automatic.usage(seen.json, next(clock) * pace_s), "output_tokens": 400}
        return openai.response_answer(openai.Text("a" * 1600, 1), end=openai.completed(usage=usage))

    return openai.FakeOpenAI(responses)


def all_hits(used: Sequence[Usage], lifetime: str = "5m") -> list[Usage]:
    """Return the same calls as if each had read the whole prompt of the one before, and written the rest."""
    best, before = [], 0
    for usage in used:
        written = usage.prompt - before
        hour = written if lifetime == "1h" else 0
        best.append(Usage(output=usage.output, cache_read=before, cache_write=written, cache_write_1h=hour))
        before = usage.prompt
    return best


def priced(name: str) -> Price:
    """Return what a call of *name* costs, in USD."""
    provider, _, model = name.partition("/")

    def price(usage: Usage) -> float:
        counts: dict[str, Any] = {
            "input_tokens": usage.prompt,
            "output_tokens": usage.output,
            "cache_read_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "cache_write_1h_tokens": usage.cache_write_1h,
        }
        counted = Counted(**{name: count for name, count in counts.items() if count})
        return float(calc_price(counted, model, provider_id=provider).total_price)

    return price
