"""Claude, and the models of servers that speak Anthropic's Messages API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.host.extension import Extension

if TYPE_CHECKING:
    from bot.ports.model import Model


def _claude(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.anthropic.messages import AnthropicModel  # noqa: PLC0415 - slow

    return AnthropicModel(provider, model, **given)


extension = Extension(
    "anthropic",
    "asks Claude, over Anthropic's Messages API",
    page="docs/operations.md",
    models={"anthropic": _claude},
)
