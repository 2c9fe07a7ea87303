"""Spans of each turn, sent where the settings say."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from pydantic.fields import FieldInfo

from bot.config.parts import SettingsPart
from bot.config.settings import Settings, Url
from bot.host.extension import Extension

if TYPE_CHECKING:
    from bot.observe.turn_events import Sink

ENDPOINT = SettingsPart[Url | None](
    "observe.otlp_endpoint",
    Url | None,
    FieldInfo(
        default=None, description="Where spans go, OTLP over HTTP; needs the otel extra. Null sends none."
    ),
)


def _observe(settings: Settings) -> AbstractAsyncContextManager[Sink | None]:
    from bot.extensions.tracing.otlp_export import open_spans  # noqa: PLC0415 - only where spans are wanted

    return open_spans(ENDPOINT.of(settings), settings.name)


extension = Extension(
    "tracing",
    "sends spans of turns, model calls and tools to an OpenTelemetry collector",
    page="docs/operations.md",
    settings=(ENDPOINT,),
    observers=_observe,
)
