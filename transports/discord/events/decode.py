"""Discord's message text as a person reads it; pure. Unknown markup stays as it is.

https://docs.discord.com/developers/reference#message-formatting
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

from threads.store.checksummed_lines import scrub
from transports.base.text import without_controls

NameOf = Callable[[str], str]
"""Gives the name of ``@ID`` (a user), ``@&ID`` (a role) or ``#ID`` (a channel), "" if it is not known."""

_TOKEN = re.compile(
    r"<(?:(?P<kind>@!?|@&|#)(?P<id>[0-9]{1,20})"
    r"|a?(?P<emoji>:\w{1,64}:)[0-9]{1,20}"
    r"|t:(?P<time>[0-9]{1,11})(?::[A-Za-z])?"
    r"|(?P<command>/[^<>:\n]{1,100}):[0-9]{1,20})>"
)


def decode(text: str, name_of: NameOf) -> str:
    """Return *text* with names in place of mentions, and with readable times."""
    return _TOKEN.sub(lambda found: _decoded(found, name_of), text)


def one_line(name: str, longest: int) -> str:
    """Return a name as one line."""
    return " ".join(without_controls(scrub(name[: 4 * longest])).split())[:longest]


def _decoded(found: re.Match[str], name_of: NameOf) -> str:
    if found["id"]:
        kind = found["kind"].replace("!", "")
        return kind[0] + (name_of(kind + found["id"]) or found["id"])
    if found["time"]:
        return datetime.fromtimestamp(int(found["time"]), UTC).strftime("%Y-%m-%d %H:%M UTC")
    return found["emoji"] or found["command"]
