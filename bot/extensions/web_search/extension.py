"""Web search: off until `tools.web_search` is set, and then offered wherever `web_fetch` is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.extensions.web_search.settings import WEB_SEARCH
from bot.host.extension import Extension, Host, Running

if TYPE_CHECKING:
    from bot.host.checks import Check, Context

GROUP = "web_fetch"
"""Its name in `tools.enabled`: who may read the web may search it, and the other way round."""


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if (given := WEB_SEARCH.of(host.settings)) is None:
        yield None
        return
    from bot.extensions.web_search.client import SearchClient  # noqa: PLC0415 - only where it is on
    from bot.extensions.web_search.sources import source_of  # noqa: PLC0415
    from bot.extensions.web_search.tool import WebSearch  # noqa: PLC0415
    from bot.llm.catalog import Catalog  # noqa: PLC0415

    source = source_of(given, host.settings, host.environ)
    if given.service == "provider":
        await host.offload(Catalog.of(host.settings).load)
    tool = WebSearch(source, SearchClient(host.egress, host.work), host.settings, host.ledger)
    yield Running(tools={GROUP: [tool]}, facts={"web search": source.name})


def _warnings(settings: Settings) -> Iterator[str]:
    from bot.config.scopes import enabled_anywhere  # noqa: PLC0415 - it loads the domain

    if WEB_SEARCH.of(settings) and GROUP not in enabled_anywhere(settings):
        yield f"tools.web_search: is offered where {GROUP} is in tools.enabled, and that is nowhere"


def _checks(context: Context) -> Sequence[Check]:
    from bot.extensions.web_search.checks import check_web_search  # noqa: PLC0415 - slow
    from bot.host.checks import Check  # noqa: PLC0415

    given = WEB_SEARCH.of(context.settings)
    return [Check("web search", partial(check_web_search, given))] if given else []


extension = Extension(
    "web_search",
    "searches the web, by a provider, a service or your own SearXNG",
    page="docs/operations.md",
    settings=(WEB_SEARCH,),
    open=_open,
    warnings=_warnings,
    checks=_checks,
)
