"""OpenAI's models, also on Azure, over its Responses API, and those of other servers, over Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bot.config.built_in_extensions import has_module
from bot.host.extension import Extension

if TYPE_CHECKING:
    from bot.config.settings import Settings
    from bot.ports.model import Model


def _responses(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.openai.responses import OpenAIResponsesModel  # noqa: PLC0415 - slow

    return OpenAIResponsesModel(provider, model, **given)


def _chat(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.openai.chat import OpenAIChatModel  # noqa: PLC0415 - slow

    return OpenAIChatModel(provider, model, **given)


def _azure(provider: str, model: str, **given: Any) -> Model:
    from bot.extensions.openai.azure import AzureChatModel, AzureResponsesModel  # noqa: PLC0415 - slow

    is_new = str(given["base_url"]).rstrip("/").endswith("/v1")
    return (AzureResponsesModel if is_new else AzureChatModel)(provider, model, **given)


def _faults(settings: Settings) -> Iterator[str]:
    for name, provider in settings.providers.items():
        if provider.kind == "azure" and not provider.base_url:
            yield f"providers.{name}.base_url: is required, such as https://RESOURCE.openai.azure.com/openai/v1"
        if provider.kind == "azure" and not provider.keys and not has_module("azure.identity"):
            yield f"providers.{name}.api_key: without a key it takes: pip install 'threadfast[azure]'"


extension = Extension(
    "openai",
    "asks OpenAI's models, and those of compatible servers",
    page="docs/servers.md",
    models={"openai": _responses, "openai-compatible": _chat, "azure": _azure},
    faults=_faults,
)
