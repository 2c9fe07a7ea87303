"""The way out of this machine: proxies of the environment, and authorities of one's own that sign certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.ports.config_error import ConfigInvalid

if TYPE_CHECKING:
    import ssl

PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
"""The variables that name a proxy, also in lower case."""

NO_PROXY = "I cannot use this proxy. Set it to http://HOST:PORT or socks5://HOST:PORT, or unset it"
SCHEMES = frozenset({"http", "https", "socks5", "socks5h"})


def normalize_proxies(environ: MutableMapping[str, str]) -> None:
    """Write each proxy as HTTP libraries read it: desktops say ``socks://`` for SOCKS 5, some people no scheme."""
    for name, value in _proxies(environ):
        scheme, mark, rest = value.partition("://")
        if not mark:
            environ[name] = f"http://{value}"
        elif scheme.lower() == "socks":
            environ[name] = f"socks5://{rest}"


def network_faults(environ: Mapping[str, str], ca_file: Path | None) -> Iterator[str]:
    """Yield a sentence for each proxy that no library can use, and for authorities that cannot be read. Blocking."""
    for name, value in _proxies(environ):
        if not _is_usable(value):
            yield f"{name}: {NO_PROXY}"
    try:
        tls_context(ca_file)
    except ConfigInvalid as fault:
        yield str(fault)


def tls_context(ca_file: Path | None) -> ssl.SSLContext | None:
    """Return what trusts the authorities in *ca_file* beside the usual ones; None without it.

    Raises `ConfigInvalid`.
    """
    if ca_file is None:
        return None
    import ssl  # noqa: PLC0415 - slow, and few have such a file

    import httpx2  # noqa: PLC0415 - as above

    context = httpx2.create_ssl_context()
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError as error:
        raise ConfigInvalid(f"ca_file: {ca_file} holds no certificate in PEM form") from error
    except OSError as error:
        raise ConfigInvalid(f"ca_file: {ca_file} cannot be read ({error.strerror})") from error
    return context


def _proxies(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    return [
        (name, stripped)
        for name, value in environ.items()
        if name.upper() in PROXIES and (stripped := value.strip())
    ]


def _is_usable(proxy: str) -> bool:
    try:
        address = urlsplit(proxy)
        return address.scheme in SCHEMES and bool(address.hostname) and address.port != 0
    except ValueError:
        return False
