"""The way out to the web: only to public addresses, and only to an address that was checked.

A name is resolved once, every address it has is checked, and the connection goes to one of those: between check and
use there is no second look-up that could answer otherwise (DNS rebinding). TLS stays with the name. One bad address
refuses the whole name, because a name that is half private is either a mistake or an attack.

Proxies are not used, not even from the environment: behind one, the proxy resolves, and nothing could be checked.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from bot.guards.addresses import METADATA, Network, denial_reason
from bot.guards.urls import Url, normalize_host, parse_url
from bot.ports.errors import ToolDenied, ToolError, ToolNotFound, ToolTimeout

if TYPE_CHECKING:
    from anyio.abc import SocketStream  # imports ssl, which a start has no need of

PORTS = frozenset({80, 443, 8000, 8008, 8080, 8443, 8888})
"""Ports where web pages are. Others have mail, databases and the like, which a web request can be bent to talk to."""

RESOLVE_S = 5.0
CONNECT_S = 5.0
MAX_ADDRESSES = 4
"""Addresses of a name that are tried before giving up; all of them are checked."""

MAX_LOOKUPS = 16
"""Look-ups at once: each holds a thread for as long as the system's resolver takes, whoever stopped waiting."""

INSIDE = frozenset(
    "localhost localdomain local internal intranet lan home corp private arpa onion".split()  # noqa: SIM905
)
"""Endings of names that are never public (RFC 6761, 6762, 8375, ICANN's `internal` and collision list)."""

METADATA_NAMES = frozenset({"metadata.goog", "metadata.google.internal", "instance-data.ec2.internal"})

ELSEWHERE = "Only public web addresses can be reached. Go on without it."

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host; raises OSError when it has none."""

Connect = Callable[[str, int], Awaitable["SocketStream"]]
"""Connects to an address and port; raises OSError."""


class Resolver:
    """The system's resolver, in threads of its own; at most *room* at once."""

    def __init__(self, room: int = MAX_LOOKUPS) -> None:
        self._room = threading.BoundedSemaphore(room)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return await anyio.to_thread.run_sync(
            self._look_up, host, port, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )

    def _look_up(self, host: str, port: int) -> list[str]:
        if not self._room.acquire(blocking=False):
            raise ToolError("Too many look-ups are waiting.", suggestion="Try again in a moment.")
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        finally:
            self._room.release()
        return list(dict.fromkeys(str(address[4][0]) for address in found))


class Egress:
    """Decides what may be reached, and connects to it.

    *allow_private* are hosts and networks that the operator opens: "wiki.corp.example", "10.1.0.0/16". A named host
    may have private addresses and be asked on any port. Raises ValueError for one that is neither. *resolve* and
    *connect* are for tests: the addresses that a name has, and where a checked address is really found.
    """

    def __init__(
        self,
        allow_private: Iterable[str] = (),
        *,
        resolve: Resolve | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._hosts, self._networks = parse_allowed(allow_private)
        self._resolve, self._connect = resolve or Resolver(), connect or _connect

    def check(self, url: str) -> Url:
        """Return an address that may be tried, in parts; raises `ToolDenied`.

        Nothing is looked up: whether its name leads somewhere public is for `addresses` to say.
        """
        parts = parse_url(url)
        self._check_host(parts.host, parts.port)
        return parts

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses of *host*, all of them public, in the system's order.

        Raises `ToolDenied` if only one is not, `ToolNotFound` if there are none, `ToolTimeout`.
        """
        host = normalize_host(host)
        if self._check_host(host, port):
            return [host]
        found = await self._resolved(host, port)
        for address in found:
            self._check_address(host, address)
        return found

    async def open_connection(self, host: str, port: int) -> SocketStream:
        """Return a connection to one of the checked addresses of *host*.

        Raises what `addresses` raises, and `ToolError` when none can be reached.
        """
        for address in (await self.addresses(host, port))[:MAX_ADDRESSES]:
            try:
                with anyio.move_on_after(CONNECT_S):
                    return await self._foreign(host, address, await self._connect(address, port))
            except OSError:
                continue
        raise ToolError(f"{host[:200]} cannot be reached.", suggestion="Try another source.")

    async def _foreign(self, host: str, address: str, stream: SocketStream) -> SocketStream:
        """Return *stream* unless it ended on this machine, behind the firewall that guards its public address."""
        from anyio.abc import SocketAttribute  # noqa: PLC0415 - there since it connected

        ours = stream.extra(SocketAttribute.local_address)[0]  # noqa: S610 - not Django's
        if ours == address and not self._allowed(host, address):
            await stream.aclose()
            raise ToolDenied(f"{host[:200]} is this machine.", suggestion=ELSEWHERE)
        return stream

    def _check_host(self, host: str, port: int) -> bool:
        """Return whether *host* is an address, and then a good one; raises `ToolDenied`."""
        literal = _is_address(host)
        named = host in self._hosts
        if literal:
            self._check_address(host, host)
        elif host in METADATA_NAMES and not named:
            raise ToolDenied(f"{host} is {METADATA}.", suggestion=ELSEWHERE)
        elif not named and ("." not in host or host.rsplit(".", 1)[1] in INSIDE):
            raise ToolDenied(f"{host[:200]} is a name of an inner network.", suggestion=ELSEWHERE)
        if port not in PORTS and not named and not (literal and self._allowed(host, host)):
            raise ToolDenied(f"Port {port} is not one that web pages are on.", suggestion=ELSEWHERE)
        return literal

    def _check_address(self, host: str, address: str) -> None:
        try:
            why = denial_reason(
                ipaddress.ip_address(address), named=host in self._hosts, networks=self._networks
            )
        except ValueError:
            why = "no address"
        if why:
            verb = "is" if host == address else "leads to"
            raise ToolDenied(f"{host[:200]} {verb} {why}.", suggestion=ELSEWHERE)

    def _allowed(self, host: str, address: str) -> bool:
        """Return whether the operator allows this host or address."""
        return host in self._hosts or any(
            ipaddress.ip_address(address) in network for network in self._networks
        )

    async def _resolved(self, host: str, port: int) -> list[str]:
        try:
            with anyio.fail_after(RESOLVE_S):
                found = list(await self._resolve(host, port))
        except TimeoutError:
            raise ToolTimeout(f"{host[:200]} was not found in time.", suggestion="Try again later.") from None
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise ToolNotFound(f"There is no host {host[:200]}.", suggestion="Check the address.")
        return found


async def _connect(address: str, port: int) -> SocketStream:
    return await anyio.connect_tcp(address, port)


def parse_allowed(entries: Iterable[str]) -> tuple[frozenset[str], tuple[Network, ...]]:
    """Return the hosts and networks that an operator's list names; raises ValueError for what is neither."""
    hosts: set[str] = set()
    networks: list[Network] = []
    for entry in entries:
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError:
            try:
                hosts.add(normalize_host(entry))
            except ToolDenied as error:
                raise ValueError(f"{entry!r} is no host and no network") from error
    return frozenset(hosts), tuple(networks)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
