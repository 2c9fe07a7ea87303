"""Asks a search service over HTTP, through the egress guard, with a bound on everything that it decides.

An address that the settings name may be private: a person chose it. No redirect is followed, so nothing else there
can be reached.
"""

from __future__ import annotations

import json
import ssl
import zlib
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import h11

from bot.extensions.web_search.found import Answer, Query, Source
from bot.guards.egress import Egress
from bot.guards.urls import parse_url
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolMalformedOutput, ToolTimeout
from bot.tools.web.get import exchange
from bot.tools.web.http_client import Response
from bot.tools.web.http_peer import LOST
from bot.tools.web.tool import http_failure
from threads.store.disk import Offload

NO_SEARCH = "Go on without a search, and say so."
AGENT = "threadfast (chat bot; web_search)"


def _certificates() -> ssl.SSLContext:
    import httpx2  # noqa: PLC0415 - slow

    return httpx2.create_ssl_context()


@dataclass(slots=True)
class SearchClient:
    egress: Egress
    offload: Offload
    _tls: ssl.SSLContext | None = field(default=None, init=False)

    async def ask(self, source: Source, query: Query, deadline: float) -> Answer:
        """Return the JSON object that the service answers with; *deadline* is on anyio's clock.

        Raises `ToolTimeout` or `ToolMalformedOutput` where it may have done its work, and another `ToolError` where
        it has not.
        """
        egress = Egress([parse_url(query.url).host]) if source.own_address else self.egress
        page = Response(egress.check(query.url))
        if self._tls is None:
            self._tls = await self.offload(_certificates)
        try:
            with anyio.fail_after(max(0.0, deadline - anyio.current_time())):
                await exchange(egress, self._tls, page, *_wire(query), source.patience_s)
        except TimeoutError:
            raise ToolTimeout(f"{source.name} did not answer in time.", suggestion=NO_SEARCH) from None
        except (*LOST, ssl.SSLError, h11.ProtocolError, zlib.error, UnicodeError):
            raise malformed(source) from None  # its text can have a header, and so the key
        if not 200 <= page.status < 300:
            raise _failure(source, page)
        with suppress(ValueError, RecursionError):
            if isinstance(answer := json.loads(page.data), dict):
                return answer
        raise malformed(source)


def _wire(query: Query) -> tuple[dict[str, str], bytes]:
    """Return the headers and the data of a request."""
    headers = {"User-Agent": AGENT, "Accept": "application/json", **query.headers}
    if query.body is None:
        return headers, b""
    data = json.dumps(query.body).encode()
    return {**headers, "Content-Type": "application/json", "Content-Length": str(len(data))}, data


def malformed(source: Source) -> ToolError:
    return ToolMalformedOutput(f"{source.name} gave no valid answer.", suggestion=NO_SEARCH)


def _failure(source: Source, page: Response) -> ToolError:
    """Return the error that a status is, which is no success, without a word of the service's own."""
    match status := page.status:
        case 403 if source.name == "SearXNG":
            why = "SearXNG gives no JSON: its settings.yml needs `json` under `search.formats`."
        case 401 | 402 | 403 | 432 | 433:  # the last two are Tavily's for an account that is used up
            why = f"{source.name} refuses the key that is set here, or its account is used up ({status})."
        case 400 | 404 | 413 | 414 | 422:
            why = f"{source.name} did not take this search ({status})."
            return ToolInvalidInput(why, suggestion=NO_SEARCH)
        case _:
            return http_failure(source.name, 429 if status == 529 else status, page.retry_after)
    return ToolDenied(why, suggestion=NO_SEARCH)
