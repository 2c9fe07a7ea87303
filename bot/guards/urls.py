"""Web addresses, read strictly and written one way. Pure.

What is checked must be what is connected to, so an address is taken apart here once, and the parts are what is used
from then on. Notations that programs read differently are refused, not guessed at: numbers as hosts, percent signs
and backslashes in hosts, user names, trailing dots, look-alike digits and dots, control characters.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, urljoin

from bot.ports.errors import ToolDenied

MAX_URL = 8_000
"""Characters. RFC 9110 asks recipients for 8,000 octets; longer ones carry data out."""

DEFAULT_PORTS = {"http": 80, "https": 443}
FIX = "Give a plain http or https address."

_URL = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([1-9][0-9]{0,4}))?")
_DOTTED = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ENCODED = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SAFE = "/?:@!$&'()*+,;=-._~%"


@dataclass(frozen=True, slots=True)
class Url:
    """A web address in parts: ``host`` in ASCII without brackets, ``target`` the path and query as sent."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"


def parse_url(text: str) -> Url:
    """Return the parts of a web address; raises `ToolDenied`."""
    if len(text) > MAX_URL:
        raise ToolDenied(f"The address is longer than {MAX_URL} characters.", suggestion=FIX)
    if _ODD.search(text):
        raise ToolDenied("The address has control characters in it.", suggestion=FIX)
    if not (match := _URL.fullmatch(text)):
        raise ToolDenied("Only addresses that start with http:// or https:// are fetched.", suggestion=FIX)
    scheme: Literal["http", "https"] = "https" if match[1].lower() == "https" else "http"
    if "@" in match[2]:
        raise ToolDenied("The address has a user name in it.", suggestion="Leave it out.")
    if not (authority := _AUTHORITY.fullmatch(match[2])):
        raise ToolDenied("The host or port of the address cannot be read.", suggestion=FIX)
    host = normalize_host(authority[1])
    port = int(authority[2] or DEFAULT_PORTS[scheme])
    if port > 65535:
        raise ToolDenied("There is no such port.", suggestion=FIX)
    return Url(scheme, host, port, _path(match[3]) + _written(match[4] or ""))


def join_url(base: Url, location: str) -> Url:
    """Return where a redirect leads from *base*; raises `ToolDenied`."""
    try:
        return parse_url(urljoin(str(base), location))
    except ValueError as error:  # urllib's word for brackets that do not match
        raise ToolDenied("The page redirects to an address that cannot be read.") from error


def normalize_host(text: str) -> str:
    """Return a host as it is looked up: an address in its one notation, or a lower case ASCII name.

    *text* may be an IPv6 address with or without brackets. Raises `ToolDenied`.
    """
    if _DOTTED.fullmatch(text) or ":" in text or text.startswith("["):
        return _literal(text)
    lowered = text.encode("utf-8", "replace").lower().decode()  # bytes: lowers ASCII and no look-alikes of it
    labels = [_label(label) for label in lowered.split(".")]
    name = ".".join(labels)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ToolDenied("The host of the address is not a name.", suggestion=FIX)
    if not labels[-1][0].isalpha():
        raise ToolDenied("The host of the address is a number in disguise.", suggestion=FIX)
    return name


def _literal(text: str) -> str:
    try:
        if ":" in text:
            address = str(ipaddress.IPv6Address(text.removeprefix("[").removesuffix("]")))
        else:
            address = str(ipaddress.IPv4Address(text))
    except ValueError:
        address = ""
    if not address or "%" in text:
        raise ToolDenied("The host of the address is not a valid IP address.", suggestion=FIX)
    return address


def _label(label: str) -> str:
    """Return a part of a name as DNS has it; raises `ToolDenied` for letters that IDNA 2008 forbids."""
    if label.isascii() and not label.startswith("xn--"):
        return label
    import idna  # noqa: PLC0415 - 10 ms, for few addresses

    try:
        return idna.alabel(label).decode()
    except idna.IDNAError:
        raise ToolDenied("The host of the address has letters that no host has.", suggestion=FIX) from None


def _path(path: str) -> str:
    """Return a path without dot segments, so that a rule for a folder holds."""
    parts: list[str] = []
    segments = _written(path).split("/")[1:]
    for number, part in enumerate(segments, 1):
        if part == "..":
            del parts[-1:]
        if part not in (".", ".."):
            parts.append(part)
        elif number == len(segments):
            parts.append("")
    return "/" + "/".join(parts)


def _written(text: str) -> str:
    """Return a part of an address with what needs no encoding decoded, and what needs it encoded."""

    def plain(match: re.Match[str]) -> str:
        char = chr(int(match[1], 16))
        return char if char in _UNRESERVED else match[0].upper()

    return quote(_ENCODED.sub(plain, text), safe=_SAFE)
