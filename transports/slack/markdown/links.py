"""Which links may be clicked, and how the others are written; pure.

A model's link can leak what it knows to the host, and Slack fetches it for a preview without a click. Neither
``chat.update`` nor a stream can switch that off, so there a link to a host that nobody named becomes inline code.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from html import unescape
from urllib.parse import quote

ZERO_WIDTH = "\u200b"

_HTTP = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_NAME = re.compile(r"([a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::[0-9]{1,5})?", re.ASCII)
_WRITTEN = re.compile(r"https?://[^\s<>|\"`]+", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_UNFIT = re.compile(r"[\s<>\"`|\\^{}()\[\]]")
_UNFIT_IN_CODE = re.compile(r"[\s<>`|\\]")
_PING = re.compile(r"(?i)@(?=here|channel|everyone)")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_DOTTED = re.compile(r"[^\s/\\@:?#()<>\[\],;'\"]+(?:\.[^\s/\\@:?#()<>\[\],;'\".]+)+")
_TRUSTED_LENGTH = 2_000


@dataclass(frozen=True, slots=True)
class Links:
    """``allowed``: hosts, each with its subdomains, that may be linked anywhere.

    ``live``: this post has its previews switched off, so that other links may be clicked too. ``own``: addresses that
    the bot itself wrote, which are clicked everywhere.
    """

    allowed: frozenset[str] = frozenset()
    live: bool = False
    own: frozenset[str] = frozenset()

    def clickable(self, url: str) -> bool:
        """Return whether *url* is an ordinary address of a host that may be linked here."""
        host = host_of(url)
        trusted = self.live or url in self.own
        return host is not None and (trusted or any(_within(host, name) for name in self.allowed))


def _within(host: str, trusted: str) -> bool:
    trusted = trusted.lower().strip(".")
    return host == trusted or host.endswith(f".{trusted}")


def host_of(url: str) -> str | None:
    """Return the host of an ordinary web address, in lower case.

    Returns None if the address has another scheme, a name and password, a backslash, or more than 2,000 characters,
    or if its host is percent-encoded, an IPv6 address or not ASCII (it may look like another host).
    """
    if (found := _HTTP.match(url)) is None or "\\" in url or len(url) > _TRUSTED_LENGTH:
        return None
    name = _NAME.fullmatch(found[1].lower())
    return name[1] if name else None


def hosts_in(text: str) -> frozenset[str]:
    """Return the hosts of the links in a person's decoded text, without quotes."""
    own = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(">"))
    hosts = (host_of(found.rstrip(".,;:!?)'*_~")) for found in _WRITTEN.findall(own))
    return frozenset(host for host in hosts if host)


def without_entities(text: str) -> str:
    """Decode the entities in the target of a link, once."""
    return _ENTITY.sub(lambda found: unescape(found[0]), text)


def fit(url: str) -> str:
    """Percent-encode all that could end *url* in Markdown, a table or Slack's own form."""
    return _encoded(_UNFIT, url)


def _encoded(unfit: re.Pattern[str], url: str) -> str:
    return without_pings(unfit.sub(lambda found: quote(found[0], safe=""), url))


def without_pings(url: str) -> str:
    return _PING.sub("%40", url)


def break_live(text: str, own: frozenset[str] = frozenset()) -> str:
    """Put a zero-width space into every group mention and address but *own* ones, so that no other is a link."""
    if own:
        # Whole ones only: what a longer address begins with is not ours.
        kept = re.compile(
            rf"(?<![^\s(])({'|'.join(map(re.escape, sorted(own, key=len, reverse=True)))})(?=[).,;]*(?:\s|\Z))"
        )
        return "".join(piece if piece in own else break_live(piece) for piece in kept.split(text))
    text = re.sub(r"(?i)(?<=[a-z0-9+.-])://", f":{ZERO_WIDTH}//", text)
    text = re.sub(r"(?i)\b(www|mailto|tel)(?=[.:])", rf"\1{ZERO_WIDTH}", text)
    return _PING.sub(f"@{ZERO_WIDTH}", text)


def written_as_code(url: str) -> str:
    """Return *url* as inline code: readable, and nothing to click or to fetch."""
    return f"`{_encoded(_UNFIT_IN_CODE, url)}`"


def names_another_host(label: str, host: str) -> bool:
    """Return whether *label* looks like the name of a host that is not *host*'s own."""
    read = (
        unicodedata.normalize("NFKC", _INVISIBLE.sub("", without_entities(label))).replace("。", ".").lower()
    )
    names = (name.strip("*_~`") for name in _DOTTED.findall(read))
    return any(
        re.search(r"\.[^\W\d_]{2,}$", name) and not _within(host, name) and not _within(name, host)
        for name in names
    )
