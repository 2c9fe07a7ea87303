"""Where the page is, and which hosts and origins are its own; pure."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the page listens. ``public_url`` is what people type where a proxy stands before it, else blank.

    ``tls``: it speaks TLS itself.
    """

    host: str
    port: int
    public_url: str = ""
    tls: bool = False

    @property
    def url(self) -> str:
        """The address for people, without a slash at the end."""
        if self.public_url:
            return self.public_url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def secure(self) -> bool:
        """Whether browsers reach it by TLS, so that its cookie never travels without."""
        return self.url.startswith("https://")

    def is_host(self, host: str) -> bool:
        """Return whether a request's ``Host`` header names this page."""
        return host.lower() in self._hosts

    def is_origin(self, origin: str) -> bool:
        """Return whether a request's ``Origin`` header is this page's own."""
        scheme = "https" if self.secure else "http"
        return any(origin.lower() == f"{scheme}://{host}" for host in self._hosts)

    @property
    def _hosts(self) -> set[str]:
        own = urlsplit(self.url)
        hosts = {own.netloc.lower()}
        if not self.public_url and is_loopback(self.host):
            hosts |= {f"{name}:{self.port}" for name in LOOPBACK}
        return hosts


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
