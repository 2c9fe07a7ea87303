"""Builds the adapter of a model, ``provider/model``, and the gate of a provider from the settings.

Only the adapters in use are imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from bot.config.extensions import installed_for, missing_words
from bot.config.load import key_fault, resolve_secret
from bot.config.params import merge
from bot.config.settings import ModelFacts, Provider, Settings, needs_key
from bot.llm.adapters.http_client import SharedHttp
from bot.llm.policies.gate import Gate
from bot.llm.policies.queue import CallQueue
from bot.ports.config_error import ConfigInvalid
from bot.ports.model import Model


def is_local(provider: Provider) -> bool:
    """Return whether the provider's address is on this machine."""
    return _is_local(provider.base_url or "")


@lru_cache(maxsize=100)
def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
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
    key: int = 0,
) -> Model:
    """Return the model *name* with the provider's key at the place *key*.

    Raises `ConfigInvalid` for an unknown provider or a missing key.
    """
    kind, _, model = name.partition("/")
    if kind == "offline":
        from bot.llm.adapters.offline import OfflineModel

        return OfflineModel()
    if (provider := settings.providers.get(kind)) is None:
        raise ConfigInvalid(f"model: {name!r} names no known provider; add it under providers")
    here = installed_for(settings)
    if provider.kind not in here.models:
        owner = here.missing("models")[provider.kind]
        raise ConfigInvalid(f"model: {missing_words(provider.kind, owner)}")
    make: Callable[..., Model] = here.models[provider.kind]
    secret = secret_of(provider, kind, environ, key)
    facts = settings.models.get(name, ModelFacts())
    return make(
        kind,
        model,
        api_key=secret,
        base_url=provider.base_url,
        http=http,
        timeouts=settings.stream_timeouts_s,
        now=now,
        vision=vision,
        params=merge(provider.params, facts.params),
    )


async def prepare_adapter(model: Model) -> None:
    """Do what a model's first call would wait for. Raises `ProviderError`."""
    from bot.llm.adapters.sdk import SdkClient

    if isinstance(model, SdkClient):
        await model.prepare()


def secret_of(
    provider: Provider, name: str, environ: Mapping[str, str], place: int
) -> Callable[[], str | None]:
    """Return what reads a key of the provider for each request. Raises `ConfigInvalid` if a needed one is missing."""
    reference = provider.keys[place] if provider.keys else None
    if fault := key_fault(name, provider):
        raise ConfigInvalid(fault)

    def secret() -> str | None:
        return resolve_secret(reference, environ) if reference else None

    if needs_key(provider.kind):
        secret()
    return secret


def build_gate(
    settings: Settings, provider: Provider, sharers: Callable[[], int] = lambda: 1, *, place: int = 0
) -> Gate:
    """Return the gate for all calls with the provider's key at *place*, whose rates so many processes share."""
    queue = CallQueue(
        max_parallel=provider.max_parallel,
        requests_per_minute=provider.requests_per_minute,
        tokens_per_minute=provider.tokens_per_minute,
        shrink=settings.degradation.reduce_parallelism_on_rate_limit,
        threshold=settings.breaker.failure_threshold,
        max_wait_s=settings.breaker.max_wait_s,
        sharers=sharers,
    )
    return Gate(queue, place + 1 if len(provider.keys) > 1 else 0)
