"""Web search in settings.json: `tools.web_search`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from bot.config.document import Document, object_in
from bot.config.parts import SettingsPart
from bot.config.settings import ModelName, Secret, Section, Url, Usd, setting

Service = Literal["provider", "brave", "exa", "tavily", "searxng"]
KEYED = ("brave", "exa", "tavily")
OWN = ("anthropic", "openai")
"""The kinds of providers that search themselves."""


class WebSearchSettings(Section):
    """`tools.web_search`."""

    service: Service = setting("provider", "Who searches; `provider` is Anthropic or OpenAI.")
    model: ModelName | None = setting(None, "Whose provider searches; null is that of the bot's `model`.")
    key: Secret | None = setting(None, "Reference to the key of brave, exa or tavily.")
    url: Url | None = setting(None, "Address of your SearXNG, or of a service in place of its own.")
    results: Annotated[int, Field(ge=1, le=20)] = setting(8, "The most results of one search.")
    usd_per_1000: Usd | None = setting(None, "Price of 1,000 searches, USD; null is the known one.")


def _faults(document: Document) -> Iterator[str]:
    given, path = object_in(object_in(document.get("tools")).get("web_search")), "tools.web_search"
    service, model = given.get("service", "provider"), given.get("model") or document.get("model")
    if service == "searxng" and not given.get("url"):
        yield f"{path}.url: is required: the address of your SearXNG"
    elif service in KEYED and not given.get("key"):
        yield f'{path}.key: is required: a reference to the key, such as "env:{str(service).upper()}_API_KEY"'
    elif given and service == "provider" and isinstance(model, str):  # else it is chosen at the start
        name = model.partition("/")[0]
        if object_in(object_in(document.get("providers")).get(name)).get("kind", name) not in OWN:
            yield f"{path}: {name[:60]} has no search of its own; name a `model` that has, or another `service`"


WEB_SEARCH = SettingsPart[WebSearchSettings | None](
    "tools.web_search",
    WebSearchSettings | None,
    FieldInfo(default=None, description="Web search; null searches nothing. `{}` is the provider's own."),
    _faults,
    references=lambda given: {"key": given.key} if given else {},
    models=lambda given: [given.model] if given and given.model else [],
)
