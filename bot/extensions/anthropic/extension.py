"""Claude, and the models of servers that speak Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bot.config.built_in_extensions import has_module
from bot.host.extension import Extension

if TYPE_CHECKING:
    from bot.config.settings import Settings
    from bot.ports.model import Model

NEEDS = {"bedrock": "boto3", "vertex": "google.auth"}
"""What the SDK needs for a platform."""


def _claude(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.anthropic.messages import AnthropicModel  # noqa: PLC0415 - slow

    return AnthropicModel(provider, model, **given)


def _bedrock(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.anthropic.platforms import BedrockModel  # noqa: PLC0415 - slow

    return BedrockModel(provider, model, **given)


def _vertex(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.anthropic.platforms import VertexModel  # noqa: PLC0415 - slow

    return VertexModel(provider, model, **given)


def _faults(settings: Settings) -> Iterator[str]:
    for name, provider in settings.providers.items():
        if provider.kind in NEEDS and not has_module(NEEDS[provider.kind]):
            yield f"providers.{name}.kind: {provider.kind} takes: pip install 'threadfast[{provider.kind}]'"


extension = Extension(
    "anthropic",
    "asks Claude, over Anthropic's Messages API",
    page="docs/operations.md",
    models={"anthropic": _claude, "bedrock": _bedrock, "vertex": _vertex},
    faults=_faults,
)
