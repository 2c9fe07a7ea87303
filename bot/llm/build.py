"""Builds the adapter of a model, ``provider/model``, and the gate of a provider from the settings.

Only the adapters in use are imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from bot.config.load import resolve_secret
from bot.config.settings import Provider, Settings
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.policies.gate import Gate
from bot.llm.policies.queue import CallQueue
from bot.ports.config_error import ConfigInvalid
from bot.ports.model import Model


def is_local(provider: Provider) -> bool:
    """Return whether the provider's address is on this machine."""
    host = urlsplit(provider.base_url or "").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def build_adapter(
    name: str,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    http: SharedHttp,
    now: Callable[[], datetime],
    vision: bool = True,
) -> Model:
    """Return the model *name*; raises `ConfigInvalid` for an unknown provider or a missing key."""
    kind, _, model = name.partition("/")
    if kind == "offline":
        from bot.llm.adapters.offline import OfflineModel

        return OfflineModel()
    provider = settings.providers.get(kind)
    if provider is None:
        raise ConfigInvalid(f"model: {name!r} names no known provider; add it under providers")
    key = _key_of(provider, kind, environ)
    if provider.kind == "openai-compatible":
        from bot.llm.adapters.openai_chat import OpenAIChatModel

        adapter: Callable[..., Model] = OpenAIChatModel
    elif provider.kind == "anthropic":
        from bot.llm.adapters.anthropic import AnthropicModel

        adapter = AnthropicModel
    else:
        from bot.llm.adapters.openai_responses import OpenAIResponsesModel

        adapter = OpenAIResponsesModel
    return adapter(
        kind,
        model,
        api_key=key,
        base_url=provider.base_url,
        http=http,
        timeouts=settings.stream_timeouts_s,
        now=now,
        vision=vision,
    )


def build_transcription(
    name: str,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    http: SharedHttp,
    now: Callable[[], datetime],
) -> Model:
    """Return the transcription model *name*; raises `ConfigInvalid` for a provider without any, or a missing key."""
    from bot.llm.adapters.openai_transcription import OpenAITranscription

    kind, _, model = name.partition("/")
    provider = settings.providers.get(kind)
    if provider is None or provider.kind == "anthropic":
        raise ConfigInvalid(f"transcription.model: {name!r} names no provider that transcribes")
    key = _key_of(provider, kind, environ)
    return OpenAITranscription(
        kind,
        model,
        api_key=key,
        base_url=provider.base_url,
        http=http,
        timeouts=settings.stream_timeouts_s,
        now=now,
    )


def _key_of(provider: Provider, name: str, environ: Mapping[str, str]) -> Callable[[], str | None]:
    """Return what reads the provider's key for each request. Raises `ConfigInvalid` if one is needed and missing."""
    reference = provider.api_key
    if reference is None and provider.kind != "openai-compatible":
        raise ConfigInvalid(
            f'providers.{name}.api_key: {name} needs a key, such as "env:{name.upper()}_API_KEY"'
        )

    def key() -> str | None:
        return resolve_secret(reference, environ) if reference else None

    if provider.kind != "openai-compatible":
        key()
    return key


def build_gate(settings: Settings, provider: Provider, sharers: Callable[[], int] = lambda: 1) -> Gate:
    """Return the gate for all calls to one provider and key, whose rates so many processes share."""
    queue = CallQueue(
        max_parallel=provider.max_parallel,
        requests_per_minute=provider.requests_per_minute,
        tokens_per_minute=provider.tokens_per_minute,
        shrink=settings.degradation.reduce_parallelism_on_rate_limit,
        threshold=settings.breaker.failure_threshold,
        max_wait_s=settings.breaker.max_wait_s,
        sharers=sharers,
    )
    return Gate(queue)
