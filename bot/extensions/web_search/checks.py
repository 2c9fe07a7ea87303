"""Checks web search for `threadfast doctor`: its key, and a search where that costs nothing."""

from __future__ import annotations

import anyio

from bot.extensions.web_search.client import SearchClient, malformed
from bot.extensions.web_search.found import Source
from bot.extensions.web_search.settings import WebSearchSettings
from bot.extensions.web_search.sources import source_of
from bot.guards.egress import Egress
from bot.host.checks import AS_ROOT, Context, Findings
from bot.ports.config_error import ConfigInvalid
from bot.ports.errors import ToolError
from transports.shared.checks import Finding

NAME = "web search"
LONGEST_S = 20.0


async def check_web_search(given: WebSearchSettings, context: Context) -> Findings:
    try:
        source = source_of(given, context.settings, context.environ)
    except ConfigInvalid as error:
        if context.has_all_links:
            yield Finding(NAME, "warn", str(error), "The running bot can.", AS_ROOT)
        else:
            yield Finding(NAME, "fail", str(error), "The bot does not start.", "Set it.")
        return
    if given.service == "searxng" and not context.offline:
        yield await _search(source, context)
    else:
        yield Finding(NAME, "ok", f"{source.name} is set up; not asked")


async def _search(source: Source, context: Context) -> Finding:
    client, deadline = SearchClient(Egress(), context.offload), anyio.current_time() + LONGEST_S
    try:
        found = source.found(await client.ask(source, source.query("threadfast"), deadline))["results"]
    except (ToolError, LookupError, TypeError, AttributeError) as error:
        why = error if isinstance(error, ToolError) else malformed(source)
        fix = "Look at its log, and at `tools.web_search.url`."
        return Finding(NAME, "fail", str(why), "The model cannot search the web.", fix)
    if not found:
        fix = "Look which of its engines work: its page /stats shows it."
        return Finding(NAME, "warn", f"{source.name} found nothing", "Searches may find nothing.", fix)
    return Finding(NAME, "ok", f"{source.name} answers")
