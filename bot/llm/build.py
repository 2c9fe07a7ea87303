"""From a model's name, ``provider/model``, to the stack that serves it: retry over the provider's adapter.

Only the chosen provider's adapter is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from bot.errors import ConfigInvalid
from bot.llm.http import SharedHttp
from bot.llm.model import Model
from bot.llm.retry import Retrying, RetryPolicy, Schedule
from bot.settings import resolve_secret
from bot.settings_model import LlmRetry, Provider, Settings

LOOPBACK_HOSTS = ("http://127.0.0.1", "http://localhost", "http://[::1]")


def build_model(
    name: str,
    settings: Settings,
    environ: Mapping[str, str],
    *,
    http: SharedHttp,
    random: Callable[[], float],
    now: Callable[[], datetime],
) -> Model:
    """Return the model *name*; raises `ConfigInvalid` for a provider that is not known or a key that is not set."""
    kind, _, model = name.partition("/")
    if kind == "offline":
        from bot.llm.offline import OfflineModel

        return OfflineModel()
    provider = settings.providers.get(kind)
    if provider is None:
        raise ConfigInvalid(f"model: {name!r} names no known provider; add it under providers")
    local = bool(provider.base_url) and str(provider.base_url).startswith(LOOPBACK_HOSTS)
    adapter = _adapter(kind, model, provider, settings, environ, http, now)
    return Retrying(adapter, retry_policy(settings.llm_retry, local=local), random)


def _adapter(
    kind: str,
    model: str,
    provider: Provider,
    settings: Settings,
    environ: Mapping[str, str],
    http: SharedHttp,
    now: Callable[[], datetime],
) -> Model:
    from bot.llm.stream import StreamTimeouts

    given = settings.stream_timeouts_s
    timeouts = StreamTimeouts(given.connect, given.first_content, given.idle, given.total)
    reference, base_url = provider.api_key, provider.base_url
    if provider.kind == "openai-compatible":
        from bot.llm.openai import OpenAIChatModel

        def optional_key() -> str | None:
            return resolve_secret(reference, environ) if reference else None

        return OpenAIChatModel(
            kind, model, api_key=optional_key, base_url=base_url, http=http, timeouts=timeouts, now=now
        )
    if reference is None:
        raise ConfigInvalid(
            f'providers.{kind}.api_key: {kind} needs a key, such as "env:{kind.upper()}_API_KEY"'
        )
    wanted: str = reference

    def key() -> str:
        return resolve_secret(wanted, environ)

    key()
    if provider.kind == "anthropic":
        from bot.llm.anthropic import AnthropicModel

        return AnthropicModel(
            kind, model, api_key=key, base_url=base_url, http=http, timeouts=timeouts, now=now
        )
    from bot.llm.openai import OpenAIResponsesModel

    return OpenAIResponsesModel(
        kind, model, api_key=key, base_url=base_url, http=http, timeouts=timeouts, now=now
    )


def retry_policy(given: LlmRetry, *, local: bool) -> RetryPolicy:
    """Return the retry settings in seconds; *local* is a server on this machine."""
    limited = given.rate_limited
    return RetryPolicy(
        transient=Schedule(
            given.max_retries,
            given.base_delay_ms / 1000,
            given.max_delay_ms / 1000,
            given.backoff,
            given.jitter,
        ),
        rate_limited=Schedule(
            limited.attempts,
            limited.base_delay_ms / 1000,
            limited.max_delay_ms / 1000,
            given.backoff,
            given.jitter,
        ),
        max_retry_after_s=given.max_retry_after_s,
        local=local,
    )
