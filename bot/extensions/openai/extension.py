"""The models of OpenAI, over its Responses API, and those of compatible servers, over Chat Completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.host.extension import Extension

if TYPE_CHECKING:
    from bot.ports.model import Model


def _responses(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.openai.responses import OpenAIResponsesModel  # noqa: PLC0415 - slow

    return OpenAIResponsesModel(provider, model, **given)


def _chat(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.openai.chat import OpenAIChatModel  # noqa: PLC0415 - slow

    return OpenAIChatModel(provider, model, **given)


extension = Extension(
    "openai",
    "asks OpenAI's models, and those of compatible servers",
    page="docs/servers.md",
    models={"openai": _responses, "openai-compatible": _chat},
)
