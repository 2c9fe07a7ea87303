"""Addresses and links; pure. Every address is written in ``<>``: there it ends where it ends, and has no preview."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import urlsplit

from markdown_it.rules_inline import StateInline

_IN_BRACKETS = re.compile(r"<(https?://\w[^\s<>]{0,2000}+)>", re.IGNORECASE)
_WEB = re.compile(r"https?://", re.IGNORECASE)
_DOTTED = re.compile(r"[\w-]++(?:\.[\w-]++)++")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")


def address_in_brackets(state: StateInline, silent: bool) -> bool:
    """Take ``<https://…>`` as an address, just as it is written; a rule of markdown-it."""
    if (found := _IN_BRACKETS.match(state.src, state.pos, state.posMax)) is None:
        return False
    if not silent:
        state.push("address", "", 0).content = found[1]
    state.pos = found.end()
    return True


def link(label: str, url: str, beyond: str = "") -> str:
    """Return a link that leads where it says; what Discord cannot link shows its target as code."""
    plain = unicodedata.normalize("NFKC", re.sub(r"[\\*_~`\u200b]", "", label))
    said = _INVISIBLE.sub("", plain).strip().lower()
    if not _WEB.match(url):
        target = url.removeprefix("mailto:").replace("`", "%60")
        return label if said == target.lower() else f"{label} (`{target}`)" if said else f"`{target}`"
    url = url.replace("(", "%28").replace(")", "%29").replace(">", "%3E")
    host = _host(url)
    if said.rstrip("/") in ("", url.lower().rstrip("/"), _WEB.sub("", url.lower(), count=1).rstrip("/")):
        return f"<{url}>"
    if "://" in said:
        inert_label = label.replace("://", r"\://")
        return f"<{url}>" if _host(said) == host and " " not in said else f"{inert_label} (<{url}>)"
    link = f"[{label}](<{url}>)"
    return f"{link} ({host})" if _names_another(said, host) and not beyond.startswith(f" ({host})") else link


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"


def _names_another(said: str, host: str) -> bool:
    """Return whether a link's words look like the name of a host that is not its own."""
    names = (name for name in _DOTTED.findall(said.replace("。", ".")) if re.search(r"\.[^\W\d_]{2,}$", name))
    return any(not (name == host or host.endswith(f".{name}") or name.endswith(f".{host}")) for name in names)
