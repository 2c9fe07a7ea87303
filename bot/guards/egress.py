"""The way out to the web: connects only to public addresses, and only to the address that was checked.

A name is resolved once, all of its addresses are checked, and the connection goes to one of them: no second look-up
could answer otherwise (DNS rebinding). TLS stays with the name. One bad address refuses the name: half private is a
mistake or an attack.

Proxies are not used, not even from the environment: a proxy would resolve the name, and nothing could be checked.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from bot.guards.addresses import METADATA, Address, Network, denial_reason
from bot.guards.urls import Url, normalize_host, parse_url
from bot.ports.errors import ToolDenied, ToolError, ToolNotFound, ToolTimeout

if TYPE_CHECKING:
    from anyio.abc import SocketStream  # imports ssl, which a start does not need

PORTS = frozenset({80, 443, 8000, 8008, 8080, 8443, 8888})
"""Ports of web pages. On others are mail, databases and the like, which a web request could talk to."""

RESOLVE_S = 5.0
CONNECT_S = 5.0
MAX_ADDRESSES = 4
"""Addresses of a name that are tried; all are checked."""

MAX_LOOKUPS = 16
"""Look-ups at once: each holds a thread until the system's resolver answers, even if nobody waits any more."""

PRIVATE_ENDINGS = frozenset(
    "localhost localdomain local internal intranet lan home corp private arpa onion".split()  # noqa: SIM905
)
"""Endings of names that are never public (RFC 6761, 6762, 8375, ICANN's `internal` and collision list)."""

METADATA_NAMES = frozenset({"metadata.goog", "metadata.google.internal", "instance-data.ec2.internal"})

ELSEWHERE = "Only public web addresses can be reached. Go on without it."

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host; raises OSError if it has none."""

Connect = Callable[[str, int], Awaitable["SocketStream"]]
"""Connects to an address and port; raises OSError."""


class Resolver:
    """The system's resolver, in its own threads; at most *limit* at once."""

    def __init__(self, limit: int = MAX_LOOKUPS) -> None:
        self._slots = threading.BoundedSemaphore(limit)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return await anyio.to_thread.run_sync(
            self._look_up, host, port, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )

    def _look_up(self, host: str, port: int) -> list[str]:
        if not self._slots.acquire(blocking=False):
            raise ToolError("Too many look-ups are waiting.", suggestion="Try again in a moment.")
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        finally:
            self._slots.release()
        return list(dict.fromkeys(str(info[4][0]) for info in infos))


class Egress:
    """Decides what may be reached, and connects to it.

    *allow_private* are hosts and networks that the operator allows: "wiki.corp.example", "10.1.0.0/16". A named host
    may have private addresses, and any port. Raises ValueError for an entry that is neither. *resolve* and *connect*
    are for tests.
    """

    def __init__(
        self,
        allow_private: Iterable[str] = (),
        *,
        resolve: Resolve | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._hosts, self._networks = parse_allowed(allow_private)
        self._resolve, self._connect = resolve or Resolver(), connect or anyio.connect_tcp

    def check(self, url: str) -> Url:
        """Return the parts of a web address that may be tried; raises `ToolDenied`. Resolves nothing."""
        parts = parse_url(url)
        self._check_host(parts.host, parts.port)
        return parts

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of *host*, in the system's order.

        Raises `ToolDenied` if one of them is not public, `ToolNotFound` if there are none, `ToolTimeout`.
        """
        host = normalize_host(host)
        if self._check_host(host, port):
            return [host]
        addresses = await self._look_up(host, port)
        for address in addresses:
            self._check_address(host, address)
        return addresses

    async def open_connection(self, host: str, port: int) -> SocketStream:
        """Connect to one of the addresses of *host*.

        Raises what `addresses` raises, and `ToolError` if none can be reached.
        """
        for address in (await self.addresses(host, port))[:MAX_ADDRESSES]:
            try:
                with anyio.move_on_after(CONNECT_S):
                    return await self._not_this_machine(host, address, await self._connect(address, port))
            except OSError:
                continue
        raise ToolError(f"{host[:200]} cannot be reached.", suggestion="Try another source.")

    async def _not_this_machine(self, host: str, address: str, stream: SocketStream) -> SocketStream:
        """Return *stream* unless it ends on this machine, which is behind the firewall of its public address."""
        from anyio.abc import SocketAttribute  # noqa: PLC0415 - see above

        ours = stream.extra(SocketAttribute.local_address)[0]  # noqa: S610 - not Django's
        if ours == address and not self._allowed(host, address):
            await stream.aclose()
            raise ToolDenied(f"{host[:200]} is this machine.", suggestion=ELSEWHERE)
        return stream

    def _check_host(self, host: str, port: int) -> bool:
        """Return whether *host* is an address; raises `ToolDenied` for a forbidden host or port."""
        literal = _address(host) is not None
        named = host in self._hosts
        if literal:
            self._check_address(host, host)
        elif host in METADATA_NAMES and not named:
            raise ToolDenied(f"{host} is {METADATA}.", suggestion=ELSEWHERE)
        elif not named and ("." not in host or host.rsplit(".", 1)[1] in PRIVATE_ENDINGS):
            raise ToolDenied(f"{host[:200]} is a name of a private network.", suggestion=ELSEWHERE)
        if port not in PORTS and not named and not (literal and self._allowed(host, host)):
            raise ToolDenied(f"Port {port} is not a port of web pages.", suggestion=ELSEWHERE)
        return literal

    def _check_address(self, host: str, address: str) -> None:
        parsed = _address(address)
        named = host in self._hosts
        reason = denial_reason(parsed, named=named, networks=self._networks) if parsed else "not an address"
        if reason:
            verb = "is" if host == address else "leads to"
            raise ToolDenied(f"{host[:200]} {verb} {reason}.", suggestion=ELSEWHERE)

    def _allowed(self, host: str, address: str) -> bool:
        """Return whether the operator allows this host."""
        return host in self._hosts or any(
            ipaddress.ip_address(address) in network for network in self._networks
        )

    async def _look_up(self, host: str, port: int) -> list[str]:
        addresses: list[str] = []
        try:
            with anyio.fail_after(RESOLVE_S):
                addresses = list(await self._resolve(host, port))
        except TimeoutError:
            raise ToolTimeout(f"{host[:200]} was not found in time.", suggestion="Try again later.") from None
        except (OSError, UnicodeError):
            pass  # as no addresses
        if not addresses:
            raise ToolNotFound(f"There is no host {host[:200]}.", suggestion="Check the address.")
        return addresses


def parse_allowed(entries: Iterable[str]) -> tuple[frozenset[str], tuple[Network, ...]]:
    """Return the hosts and networks of an operator's list; raises ValueError for an entry that is neither."""
    hosts: set[str] = set()
    networks: list[Network] = []
    for entry in entries:
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError:
            try:
                hosts.add(normalize_host(entry))
            except ToolDenied as error:
                raise ValueError(f"{entry!r} is neither a host nor a network") from error
    return frozenset(hosts), tuple(networks)


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
