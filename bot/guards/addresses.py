"""Decides which internet addresses are public; an address that is not known to be public is refused.

The tables follow IANA's special-purpose address registries (IPv4 and IPv6), read 2026-11, and the clouds' metadata
services. Python's ``is_global`` is not used: it changes between versions, and calls Azure's metadata service public.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA = "the metadata service of a cloud"

_CLOSED: dict[str, tuple[str, ...]] = {  # allowed only if the operator names the network itself
    # The metadata services of Alibaba, Azure, Amazon, Google and Scaleway; most other clouds have a link-local one.
    METADATA: ("100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128"),
    "a link-local address": ("169.254.0.0/16", "fe80::/10"),
    "a site-local address": ("fec0::/10",),
    "an unspecified address": ("0.0.0.0/8", "::/128"),
    "a documentation address": (
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20",
    ),
    "a tunnel's address": ("192.88.99.0/24", "2002::/16"),  # 6to4
    "a tunnel's or protocol's address": ("2001::/23",),  # Teredo, benchmarks, ORCHID
    "a benchmark address": ("198.18.0.0/15",),
    "a multicast address": ("224.0.0.0/4", "ff00::/8"),
    "a reserved address": ("192.0.0.0/24", "240.0.0.0/4"),
    "an IPv4 address in disguise": ("::ffff:0:0/96", "::ffff:0:0:0/96"),
}  # fmt: skip
_LOCAL: dict[str, tuple[str, ...]] = {  # addresses of hosts that an operator may name
    "a loopback address": ("127.0.0.0/8", "::1/128"),
    "a private address": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "a carrier's private address": ("100.64.0.0/10",),
}
_REST: dict[str, tuple[str, ...]] = {  # all of IPv6 but 2000::/3, the part assigned so far
    "a reserved address": ("::/3", "4000::/2", "8000::/1")
}
_NETWORKS = tuple(
    (ipaddress.ip_network(network), reason, table is _LOCAL)
    for table in (_CLOSED, _LOCAL, _REST)
    for reason, networks in table.items()
    for network in networks
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""RFC 6052: an IPv4 address inside IPv6, and as public as that."""


def denial_reason(address: Address, *, named: bool = False, networks: Iterable[Network] = ()) -> str:
    """Return why *address* may not be reached, such as "a private address", or "" if it may.

    The operator allows *networks*. *named* says that the operator named the host with this address, which allows
    private and loopback addresses only.
    """
    if any(address in network for network in networks):
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return "an address of one link"
        if address in NAT64:
            return denial_reason(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    for network, reason, local in _NETWORKS:
        if address in network:
            return "" if named and local else reason
    return ""
