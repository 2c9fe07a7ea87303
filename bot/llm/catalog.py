"""The catalog of models: prices, capabilities and context windows.

Settings come first, then the price list of genai-prices, which is read from its own files and never from the network.
`offline/demo` and free providers cost nothing, unless the settings have a price. An unknown value is None.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache, partial
from operator import mul
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from cachetools import LRUCache, cached

from bot.config.settings import ModelFacts, Price, Settings
from bot.llm.detect_model import CLOUD
from bot.llm.reasoning import efforts_of
from bot.ports.model import ModelInfo, Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo as Listed
    from genai_prices.types import ModelPrice

T = TypeVar("T")
Rate = Callable[[Usage], float]
"""Returns the cost of a call's usage in USD, at the prices when the call began."""

SHORT, PER_MILLION = 1_000, 1_000
"""Tokens for which no price for a long prompt holds, and how often a million has them."""

MOST_LISTED = 1_000
"""Listed prices that are kept in the form that is added up."""

TEXT_ONLY = (
    *("claude-2", "claude-instant", "gpt-3.5", "gpt-4-0", "gpt-4-32k", "o1-mini", "o1-preview", "o3-mini"),
    *("llama2", "llama3:", "llama3.1", "llama3.3", "codellama", "tinyllama", "gemma2", "mistral:", "mixtral"),
    *("qwen2.5:", "qwen2.5-coder", "qwen3:", "qwen3-coder", "deepseek-r1", "deepseek-v3", "gpt-oss"),
)
TOOLLESS = (
    *("claude-2", "claude-instant", "o1-mini", "o1-preview"),
    *("llama2", "codellama", "tinyllama", "gemma2"),
)
"""Families that lack a capability, by the beginning of a model's name; `models` in the settings overrides it."""


class Catalog:
    """Capabilities and prices by ``provider/model``.

    ``free`` has the providers without costs, and ``kinds`` the kind of each provider.
    """

    def __init__(
        self,
        models: Mapping[str, ModelFacts],
        prices: Mapping[str, Price],
        free: Container[str] = frozenset(),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        kinds: Mapping[str, str] = MappingProxyType({"offline": "offline"}),
    ) -> None:
        self._models, self._prices, self._free, self._now = models, prices, free, now
        self._kinds = kinds

    @classmethod
    def of(cls, settings: Settings) -> Catalog:
        free = {name for name, provider in settings.providers.items() if provider.free}
        kinds = {name: provider.kind for name, provider in settings.providers.items()}
        return cls(settings.models, settings.prices, free, kinds={"offline": "offline", **kinds})

    def load(self) -> None:
        """Read the price list, once. It takes a quarter of a second: call it in a worker thread."""
        _find_model("", "")

    def info(self, name: str) -> ModelInfo:
        """Return a model's capabilities; an unknown model has all of them."""
        provider, _, model = name.partition("/")
        facts = self._models.get(name, ModelFacts())
        short = model.rpartition("/")[2].lower()
        entry = None if self._is_free(name) else _find_model(provider, model)
        return ModelInfo(
            name,
            tools=_first(facts.tools, not short.startswith(TOOLLESS)),
            vision=_first(facts.vision, not short.startswith(TEXT_ONLY)),
            streaming=_first(facts.streaming, True),
            context_window=facts.context_window or (entry.context_window if entry else None),
            efforts=_first(facts.efforts, efforts_of(self._kinds.get(provider, ""), model)),
            reasoning_tokens=facts.reasoning_tokens,
        )

    def rate(self, name: str) -> Rate | None:
        """Return the rate of a call that begins now; None if the price is unknown."""
        if own := self.own_rate(name):
            return own
        prices = self.listed(name)
        if prices is not None and prices.input_mtok is not None and prices.output_mtok is not None:
            return _by_list(prices)
        return None

    def prices(self, name: str) -> tuple[float, float] | None:
        """Return what a million tokens of a short prompt, and of an answer, cost in USD; None if that is unknown."""
        rate = self.rate(name)
        return rate and (rate(Usage(input=SHORT)) * PER_MILLION, rate(Usage(output=SHORT)) * PER_MILLION)

    def own_rate(self, name: str) -> Rate | None:
        """Return the rate that the settings give a model; None if they leave it to the price list."""
        if (price := self._prices.get(name)) is not None:
            return partial(_by_settings, price)
        return _free if self._is_free(name) else None

    def listed(self, name: str) -> ModelPrice | None:
        """Return the prices in the list for a call that begins now."""
        provider, _, model = name.partition("/")
        entry = _find_model(provider, model)
        return entry.get_prices(self._now()) if entry else None

    def _is_free(self, name: str) -> bool:
        provider = name.partition("/")[0]
        return provider == "offline" or (provider in self._free and not name.endswith(CLOUD))


def price_fix(name: str) -> str:
    """Return a text on how to set the price of the model *name*."""
    provider = name.partition("/")[0]
    return (
        f'In settings.json write "prices": {{"{name}": {{"input": …, "output": …}}}}, in USD per million tokens; '
        f'or, if no model of {provider} costs anything, "free": true under providers.{provider}.'
    )


def most(rate: Rate, prompt_tokens: int, max_tokens: int) -> float:
    """Return the highest cost of a prompt of so many tokens and an answer of *max_tokens*.

    Listed prices never fall with the length of the prompt (tests/bot/llm/test_catalog.py checks all of them).
    """
    return max(
        rate(Usage(input=prompt_tokens, output=max_tokens)),
        rate(Usage(cache_read=prompt_tokens, output=max_tokens)),
        rate(Usage(cache_write=prompt_tokens, output=max_tokens)),
        rate(Usage(cache_write=prompt_tokens, cache_write_1h=prompt_tokens, output=max_tokens)),
    )


def _free(usage: Usage) -> float:  # noqa: ARG001
    return 0.0


def _by_settings(price: Price, usage: Usage) -> float:
    usage = _sound(usage)
    read = _first(price.cache_read, price.input)
    write = _first(price.cache_write, price.input)
    hour = _first(price.cache_write_1h, max(write, 2 * price.input))
    total = (
        usage.input * price.input
        + usage.cache_read * read
        + (usage.cache_write - usage.cache_write_1h) * write
        + usage.cache_write_1h * hour
        + usage.output * price.output
    )
    return total / 1_000_000


@cached(LRUCache[int, Rate](MOST_LISTED), key=id, lock=Lock())
def _by_list(prices: ModelPrice) -> Rate:
    """Return the rate by listed prices. A token costs the same in all prompts up to the next length in the list.

    The library takes 0.1 ms to add a call up, and a call is priced a dozen times.
    """
    lengths = sorted({tier.start for price in vars(prices).values() for tier in getattr(price, "tiers", ())})
    a_token = cache(lambda tier: _token_prices(prices, [0, *lengths][tier] + 1))

    def rate(usage: Usage) -> float:
        usage = _sound(usage)
        five_minutes = usage.cache_write - usage.cache_write_1h
        counts = (usage.input, usage.cache_read, five_minutes, usage.cache_write_1h, usage.output)
        return float(sum(map(mul, a_token(bisect_left(lengths, usage.prompt)), counts)))

    return rate


def _token_prices(prices: ModelPrice, prompt: int) -> tuple[Decimal, ...]:
    """Return what a token costs with so long a prompt: new, read, written for 5 minutes, for an hour, and output."""
    from genai_prices import Usage as Counted  # noqa: PLC0415

    def price(**more: int) -> Decimal:
        total: Decimal = prices.calc_price(Counted(input_tokens=prompt, **more))["total_price"]
        return total

    new, written = price(), {"cache_write_tokens": prompt}
    kinds = (
        new,
        price(cache_read_tokens=prompt),
        price(**written),
        price(**written, cache_write_1h_tokens=prompt),
    )
    return (*(kind / prompt for kind in kinds), price(output_tokens=1) - new)


def _sound(usage: Usage) -> Usage:
    """Return a valid usage: no count is negative, and no part exceeds its whole."""
    write = max(0, usage.cache_write)
    return Usage(
        max(0, usage.input),
        max(0, usage.output),
        max(0, usage.cache_read),
        write,
        min(write, max(0, usage.cache_write_1h)),
    )


@lru_cache(MOST_LISTED)
def _find_model(provider: str, model: str) -> Listed | None:
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415  # a quarter of a second

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None


def _first(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value
