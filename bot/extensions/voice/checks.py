"""Checks the transcription model for `threadfast doctor`: its key and its price."""

from __future__ import annotations

from functools import partial

from bot.config.load import check_used
from bot.extensions.voice.prices import audio_price_fix, price_unknown
from bot.extensions.voice.settings import Transcription
from bot.host.checks import AS_ROOT, Context, Findings
from transports.shared.checks import Finding


async def check_transcription(given: Transcription, context: Context) -> Findings:
    """Check the key and the price. The model is not asked: there is nothing to transcribe."""
    faults = await context.offload(partial(check_used, context.settings, context.environ, transports=False))
    key = f"providers.{given.model.partition('/')[0]}.api_key"
    mine = [fault for fault in faults if fault.startswith(key)]
    if mine and context.has_all_links:
        yield Finding("transcription", "warn", f"{given.model}: {mine[0]}", "The running bot can.", AS_ROOT)
    elif mine:
        meaning = "Voice messages cannot become text, and the bot does not start."
        fix = "Set the key, or take `transcription` out of the settings."
        yield Finding("transcription", "fail", f"{given.model}: {mine[0]}", meaning, fix)
    else:
        yield Finding("transcription", "ok", f"{given.model} has its key; not asked")
    if meaning := price_unknown(given, context.settings):
        found = f"the price of {given.model} is unknown"
        meaning = f"{meaning[0].upper()}{meaning[1:]}."
        yield Finding("transcription.price", "warn", found, meaning, audio_price_fix(given.model))
