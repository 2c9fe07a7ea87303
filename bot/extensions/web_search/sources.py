"""Who searches, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bot.config.load import resolve_secret
from bot.config.settings import Settings
from bot.extensions.web_search.found import Source
from bot.extensions.web_search.providers import provider_source
from bot.extensions.web_search.services import service_source
from bot.extensions.web_search.settings import OWN, WebSearchSettings
from bot.llm.build import secret_of
from bot.llm.catalog import Catalog
from bot.ports.config_error import ConfigInvalid


def source_of(given: WebSearchSettings, settings: Settings, environ: Mapping[str, str]) -> Source:
    """Return who searches. Raises `ConfigInvalid` for a key that is missing, or a model that does not search."""
    if given.service == "provider":
        source = _provider(given, given.model or settings.model, settings, environ)
    else:
        source = service_source(given, partial(resolve_secret, given.key, environ) if given.key else str)
    source.query("")  # a missing key is told at the start
    return source


def _provider(given: WebSearchSettings, model: str, settings: Settings, environ: Mapping[str, str]) -> Source:
    name = model.partition("/")[0]
    if (provider := settings.providers.get(name)) is None or provider.kind not in OWN:
        raise ConfigInvalid(f"tools.web_search: {name} has no search of its own; name another `service`")
    secret, rate = secret_of(provider, name, environ, 0), partial(Catalog.of(settings).rate, model)
    return provider_source(given, model, provider, secret, rate)
