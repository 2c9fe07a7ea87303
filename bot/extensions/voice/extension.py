"""Voice messages and other recordings: what is said in them becomes text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.extensions.voice.settings import TRANSCRIPTION
from bot.host.extension import Extension, Host, Running

if TYPE_CHECKING:
    from bot.host.checks import Check, Context


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    from bot.extensions.voice.transcripts import Transcripts, cannot_listen  # noqa: PLC0415 - for a running bot
    from bot.llm.catalog import Catalog  # noqa: PLC0415

    if given := TRANSCRIPTION.of(host.settings):
        await host.offload(Catalog.of(host.settings).load)
    yield Running(to_text=Transcripts(given, host).to_text if given else cannot_listen)


def _warnings(settings: Settings) -> Iterator[str]:
    from bot.extensions.voice.prices import audio_price_fix, price_unknown  # noqa: PLC0415 - slow

    if (given := TRANSCRIPTION.of(settings)) and (meaning := price_unknown(given, settings)):
        yield f"transcription.usd_per_minute: the price is not known: {meaning}. {audio_price_fix(given.model)}"


def _checks(context: Context) -> Sequence[Check]:
    if (given := TRANSCRIPTION.of(context.settings)) is None:
        return []
    from bot.extensions.voice.checks import check_transcription  # noqa: PLC0415 - slow
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("transcription", partial(check_transcription, given))]


extension = Extension(
    "voice",
    "makes text of voice messages and other recordings",
    page="docs/operations.md",
    settings=(TRANSCRIPTION,),
    open=_open,
    warnings=_warnings,
    checks=_checks,
)
