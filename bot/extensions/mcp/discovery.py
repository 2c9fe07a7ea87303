"""Looks where people sign in at a server, as a sign-in would, without one. It registers and stores nothing."""

from __future__ import annotations

import anyio
import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    handle_auth_metadata_response,
    handle_protected_resource_response,
)

from bot.extensions.mcp.connection import ConnectionLost
from bot.extensions.mcp.http import Guard, client
from bot.extensions.mcp.session import failure_reason

WITHIN_S = 10.0
"""Seconds for all requests together."""


async def find_authorization_server(url: str, guard: Guard) -> tuple[str, str]:
    """Return the host of the authorization server of the server at *url*, and why nobody can sign in there, or ""."""
    host = httpx2.URL(url).host
    try:
        with anyio.fail_after(WITHIN_S):
            async with client({}, None, guard) as requests:
                async with requests.stream("GET", url) as answer:  # it may open a stream that never ends
                    named = extract_resource_metadata_from_www_auth(answer)
                issuer = await _issuer(requests, named, url)
                host = httpx2.URL(issuer or url).host
                await _metadata(requests, issuer, url)
    except TimeoutError:
        return host, f"it did not answer within {WITHIN_S:g} s"
    except Exception as error:  # noqa: BLE001 - the boundary of a foreign server
        return host, failure_reason(error)
    return host, ""


async def _issuer(requests: httpx2.AsyncClient, named: str | None, url: str) -> str | None:
    """Return the authorization server that the server names; None if it names none, so it may be one itself."""
    for place in build_protected_resource_metadata_discovery_urls(named, url):
        if found := await handle_protected_resource_response(await requests.get(place)):
            return str(found.authorization_servers[0])
    return None


async def _metadata(requests: httpx2.AsyncClient, issuer: str | None, url: str) -> None:
    """Return if the authorization server says how to sign in. Raises `ConnectionLost`."""
    for place in build_oauth_authorization_server_metadata_discovery_urls(issuer, url):
        goes_on, found = await handle_auth_metadata_response(await requests.get(place))
        if found:
            return
        if not goes_on:
            raise ConnectionLost("its authorization server has trouble")
    raise ConnectionLost("it does not say where to sign in")
