"""Links to messages in Slack and Discord."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

_SLACK = re.compile(r"/archives/[A-Z0-9]+/p(\d+)(\d{6})")
_DISCORD = re.compile(r"/channels/[\d@me]+/(\d+)/(\d+)")


def linked(wanted: str) -> tuple[str, str] | None:
    """Return the message and the thread's root that a link leads to, or None if it is not a link."""
    address = urlsplit(wanted) if wanted.startswith("https://") else None
    if address is None:
        return None
    if slack := _SLACK.fullmatch(address.path):
        message = f"{slack[1]}.{slack[2]}"
        return message, parse_qs(address.query).get("thread_ts", [message])[0]
    if discord := _DISCORD.fullmatch(address.path):
        return discord[2], discord[1]
    return None
