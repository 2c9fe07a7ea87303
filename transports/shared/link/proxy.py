"""The way out of this machine: through which proxy a host is reached, and which API is a test's own."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from threads.errors import TransportFatal

NO_HTTP_PROXY = (
    "{host} can be reached only through an HTTP proxy, and the environment names another. "
    "Set HTTPS_PROXY to http://HOST:PORT, or name {host} in NO_PROXY."
)
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def proxy_for(url: str) -> str | None:
    """Return the environment's proxy for *url*: a company network may offer no other way out.

    NO_PROXY is honoured, and loopback is never behind a proxy. Raises `TransportFatal` for a proxy that is not for
    HTTP: aiohttp uses no other.
    """
    where = URL(url)
    host = where.host or ""
    if _loopback(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get({"wss": "https", "ws": "http"}.get(where.scheme, where.scheme)) or proxies.get("all")
    if proxy and not proxy.lower().startswith(("http://", "https://")):
        raise TransportFatal(NO_HTTP_PROXY.format(host=host))
    return proxy


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def own_origin(api_base_url: str | None) -> URL | None:
    """Return the origin of an API on loopback, which then keeps the files too: a test's platform."""
    if api_base_url is None or URL(api_base_url).host not in LOOPBACK:
        return None
    return URL(api_base_url).origin()


def is_trusted(url: URL, own: URL | None, *, known_host: bool) -> bool:
    """Return whether *url* is at the origin *own*, or at a host of the platform over plain https."""
    if own is not None and url.scheme and url.host and url.origin() == own:
        return True
    return known_host and url.scheme == "https" and url.port == 443 and url.user is None
