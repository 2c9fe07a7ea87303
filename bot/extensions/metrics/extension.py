"""Figures of the bot for Prometheus, at `/metrics` on the port of its health."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.host.extension import Extension

if TYPE_CHECKING:
    from bot.observe.turn_events import Sink


@asynccontextmanager
async def _observe(settings: Settings) -> AsyncIterator[Sink | None]:
    from bot.extensions.metrics.metrics import Metrics  # noqa: PLC0415 - loaded only when asked for

    yield Metrics() if settings.observe.metrics_port else None


extension = Extension(
    "metrics",
    "tells Prometheus how the bot is, and what it does",
    page="docs/operations.md",
    observers=_observe,
)
