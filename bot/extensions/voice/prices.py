"""What a transcription costs: by the minute or by tokens, as the settings say, and else the price list."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.extensions.voice.recording import AudioUsage
from bot.extensions.voice.settings import Transcription
from bot.llm.catalog import Catalog

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

AudioRate = Callable[[AudioUsage], float]
"""Returns the cost of a transcription in USD. Prices are for seconds or for tokens: the usage has to have both."""


def audio_rate(catalog: Catalog, name: str, usd_per_minute: float | None = None) -> AudioRate | None:
    """Return the rate of a transcription that begins now; None if the price is unknown."""
    if usd_per_minute is not None:
        return lambda usage: usd_per_minute * usage.seconds / 60
    if own := catalog.own_rate(name):
        return own
    prices = catalog.listed(name)
    if prices is None or not (vars(prices).get("audio_hours") or prices.input_audio_mtok):
        return None
    return partial(_by_list, prices)


def price_unknown(given: Transcription, settings: Settings) -> str:
    """Return what it means that the price of the model is not known; blank if it is."""
    if audio_rate(Catalog.of(settings), given.model, given.usd_per_minute):
        return ""
    return "a hard budget refuses it" if settings.budget.mode == "hard" else "what it costs is not counted"


def audio_price_fix(name: str) -> str:
    """Return a text on how to set the price of the transcription model *name*."""
    return f'Give the price of {name} in USD per minute, "transcription": {{"usd_per_minute": …}}.'


def _by_list(prices: ModelPrice, usage: AudioUsage) -> float:
    from genai_prices import Usage as Counted  # noqa: PLC0415

    counted = Counted(
        audio_seconds=math.ceil(usage.seconds),
        input_tokens=usage.input,
        input_audio_tokens=usage.audio_tokens,
        output_tokens=usage.output,
    )
    total: Decimal = prices.calc_price(counted)["total_price"]
    return float(total)
