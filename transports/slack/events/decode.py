"""Slack's event text as a person wrote it; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from transports.base.text import without_controls

_TOKEN = re.compile(r"<([^<>\n]{1,4000})>")
_MENTION = re.compile(r"<(?:[@#]|!subteam\^)([UWCGS][A-Z0-9]{1,30})\|?>")
_ENTITY = re.compile(r"&(amp|lt|gt);")
UNKNOWN = {"@": "someone", "#": "a-channel", "!": "a-group"}
"""What stands before the id of a person, a channel or a group without a known name."""

_MEANING = {"amp": "&", "lt": "<", "gt": ">"}
_LINK = re.compile(r"[a-z][a-z0-9+.-]*:[^\s|]+", re.IGNORECASE)


def decode(text: str, names: Mapping[str, str]) -> str:
    """Return *text* as plain text, with the *names* of people, channels and groups by id. Malformed markup stays."""
    done: list[str] = []
    at = 0
    for token in _TOKEN.finditer(text):
        done += [_decoded(text[at : token.start()]), _token(token[0], token[1], names)]
        at = token.end()
    return "".join([*done, _decoded(text[at:])])


def _decoded(text: str) -> str:
    return _ENTITY.sub(lambda found: _MEANING[found[1]], text)


def _token(whole: str, inner: str, names: Mapping[str, str]) -> str:
    target, _, label = inner.partition("|")
    kind, rest, label = target[:1], target[1:], _one_line(_decoded(label))
    group = target.removeprefix("!subteam^")
    match kind:
        case "@" | "#" if rest:
            return kind + (_one_line(names.get(rest, "")) or label or f"{UNKNOWN[kind]} ({rest})")
        case "!" if rest.startswith("subteam^"):
            name = _one_line(names.get(group, "")) or label or f"{UNKNOWN[kind]} ({group})"
            return "@" + name.removeprefix("@")
        case "!" if rest.startswith("date^"):
            return label or _date(rest.split("^")[1])
        case "!" if rest:
            return "@" + (rest if rest in ("here", "channel", "everyone") else label or rest).lstrip("@")
        case _ if _LINK.fullmatch(target):
            return _link(_decoded(target), label)
        case _:
            return _decoded(whole)


def mentioned(text: str) -> Iterator[str]:
    """Yield the ids of the people, channels and groups that *text* names without saying their names."""
    for found in _MENTION.finditer(text):
        yield found[1]


def _date(seconds: str) -> str:
    """Return a moment as people read it; blank for one that is none."""
    try:
        return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return ""


def _link(url: str, label: str) -> str:
    address = url.removeprefix("mailto:").removeprefix("tel:")
    return address if label in ("", url, address) else f"{label} ({url})"


def _one_line(text: str) -> str:
    return " ".join(without_controls(text).split())
