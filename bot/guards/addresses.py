"""Which internet addresses are public. Pure; everything that is not known to be public is refused.

The tables follow IANA's special-purpose address registries (IPv4 and IPv6), read 2026-11, and the addresses that
clouds give to their metadata services. Python's own ``is_global`` is not used: its answer changes between versions,
and it calls Azure's metadata service public, which in Azure it is not.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA = "the metadata service of a cloud"

_CLOSED: dict[str, str] = {  # opened by nothing but an operator who names the very network
    "100.100.100.200/32": METADATA,  # Alibaba
    "168.63.129.16/32": METADATA,  # Azure
    "169.254.0.0/16": "a link-local address",  # most clouds' metadata is here
    "0.0.0.0/8": "an unspecified address",
    "192.0.0.0/24": "a reserved address",
    "192.0.2.0/24": "a documentation address",
    "192.88.99.0/24": "a tunnel's address",
    "198.18.0.0/15": "a benchmark address",
    "198.51.100.0/24": "a documentation address",
    "203.0.113.0/24": "a documentation address",
    "224.0.0.0/4": "a multicast address",
    "240.0.0.0/4": "a reserved address",
    "fd00:ec2::/32": METADATA,  # Amazon
    "fd20:ce::254/128": METADATA,  # Google
    "fd00:42::42/128": METADATA,  # Scaleway
    "fe80::/10": "a link-local address",
    "fec0::/10": "a site-local address",
    "ff00::/8": "a multicast address",
    "::/128": "an unspecified address",
    "::ffff:0:0/96": "an IPv4 address in disguise",
    "::ffff:0:0:0/96": "an IPv4 address in disguise",
    "2001::/23": "a tunnel's or protocol's address",  # Teredo, benchmarks, ORCHID
    "2001:db8::/32": "a documentation address",
    "2002::/16": "a tunnel's address",  # 6to4
    "3fff::/20": "a documentation address",
}
_LOCAL: dict[str, str] = {  # where hosts live that an operator may name
    "10.0.0.0/8": "a private address",
    "100.64.0.0/10": "a carrier's private address",
    "127.0.0.0/8": "a loopback address",
    "172.16.0.0/12": "a private address",
    "192.168.0.0/16": "a private address",
    "::1/128": "a loopback address",
    "fc00::/7": "a private address",
}
_REST: dict[str, str] = {  # all of IPv6 that is not 2000::/3, the part given out so far
    "::/3": "a reserved address",
    "4000::/2": "a reserved address",
    "8000::/1": "a reserved address",
}
_NETWORKS = tuple(
    (ipaddress.ip_network(network), why, table is _LOCAL)
    for table in (_CLOSED, _LOCAL, _REST)
    for network, why in table.items()
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""RFC 6052: how an IPv6-only network reaches IPv4; as public as the IPv4 address inside."""


def denial_reason(address: Address, *, named: bool = False, networks: Iterable[Network] = ()) -> str:
    """Return what *address* is if it may not be reached, or nothing.

    *networks* are allowed by the operator; *named* is whether the operator named the host that has this address,
    which opens private and loopback addresses and nothing else.
    """
    if any(address in network for network in networks):
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return "an address of one link"
        if address in NAT64:
            return denial_reason(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    found = ((why, local) for network, why, local in _NETWORKS if address in network)
    why, local = next(found, ("", False))
    return "" if named and local else why
