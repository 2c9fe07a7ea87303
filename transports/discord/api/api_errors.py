"""Errors of the library and of its sockets as our errors. Pure.

Codes: https://docs.discord.com/developers/topics/opcodes-and-status-codes#json
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import aiohttp
import discord

from threads.errors import (
    PostFailed,
    TransportFatal,
    TransportRateLimited,
    TransportRejected,
    TransportUnavailable,
)
from transports.shared.retry import retry_seconds

Kind = Literal[
    "token", "forbidden", "locked", "gone", "expired", "exists", "blocked",
    "shape", "too_large", "old", "full", "unsupported", "other",
]  # fmt: skip
"""What a refusal means: `FRIENDLY` and `ADVICE` say what to do."""

CODES: dict[Kind, str] = {
    "token": "40001 50014",
    "forbidden": "20012 20026 50001 50009 50013 50025 160002",
    "locked": "50083 160005",
    "gone": "10003 10004 10007 10008 10013 50005",
    "expired": "10015 10062 40060 50027",
    "exists": "160004",
    "blocked": "20009 50007 50278 90001 200000 200001 240000",
    "shape": "10014 50006 50016 50035 50046 50109",
    "too_large": "40005 50045",
    "old": "30046",
    "full": "30010 30033 30034 160006 160007",
    "unsupported": "20001 40058 50003 50008 50019 50021 50024 50068",
}
KINDS: dict[int, Kind] = {int(code): kind for kind, codes in CODES.items() for code in codes.split()}
BY_STATUS: dict[int, Kind] = {
    400: "shape", 401: "token", 403: "forbidden", 404: "gone", 405: "unsupported", 413: "too_large",
}  # fmt: skip
"""For an answer whose code is 0 or unknown."""

PASSING = frozenset({40004, 40006, 110001, 130000})
"""Switched off for now, not available yet, overloaded."""

FRIENDLY: dict[Kind, str] = {
    "token": "Discord does not accept my token any more. Whoever runs this bot needs to set a new one.",
    "forbidden": "I do not have the permission for that here. Someone who manages this server has to grant it.",
    "locked": "This thread is locked or archived, so I cannot write in it. "
    "Ask a moderator to unlock it, or start a new one.",
    "gone": "The message or channel is not there any more.",
    "expired": "Too much time has passed to answer that one.",
    "exists": "That is there already.",
    "blocked": "Discord did not let my message through.",
    "shape": "Discord did not take the message in that form.",
    "too_large": "That is larger than Discord takes here.",
    "old": "The message is too old to be changed any more.",
    "full": "Discord takes no more of these here.",
    "unsupported": "That cannot be done in this kind of channel.",
    "other": "Discord refused that.",
}
"""For people in a thread."""

CLOSED: Mapping[Kind, str] = {
    "forbidden": "I do not have the permission to write there",
    "locked": "the thread is locked",
    "gone": "it is not there any more",
    "unsupported": "it takes no messages",
}
"""Why a place takes no post, for people."""

NEEDED: dict[str, str] = {
    "open_thread": "Create Public Threads",
    "react": "Add Reactions and Read Message History",
    "history": "Read Message History",
    "message": "Read Message History",
    "channel": "View Channel",
    "send": "View Channel, Send Messages, Send Messages in Threads, Attach Files and Read Message History",
}
"""The permissions for a call, by their names in Discord's settings."""

ADVICE: dict[Kind, str] = {
    "token": "reset the token under Bot at discord.com/developers/applications and set the new one",
    "forbidden": "give the bot's role more rights, here or in the channel's settings",
    "locked": "unlock the thread, or give the bot's role Manage Threads",
    "blocked": "look at the server's AutoMod rules, or at who the person takes direct messages from",
    "full": "archive old threads, or take reactions off",
}
"""For operators, after the code."""

BANNED_S = 600.0
"""How long no call is made after a ban: Discord counts bad requests in windows of ten minutes."""

MAX_MESSAGE = 200
"""Characters of Discord's own message in an error."""


class DiscordRefused(TransportRejected):
    """Discord refused the call; nothing was done.

    ``status`` is the HTTP status, ``number`` Discord's code or 0, and ``kind`` what they mean.
    """

    def __init__(self, call: str, status: int, number: int = 0, message: str = "") -> None:
        self.call, self.status, self.number = call, status, number
        self.kind: Kind = KINDS.get(number) or BY_STATUS.get(status, "other")
        self.friendly = FRIENDLY[self.kind]
        self.closed = CLOSED.get(self.kind, "") if call == "send" else ""
        self.gone = self.kind == "gone"
        self.only_thread = self.gone or self.kind == "locked"
        needed = NEEDED.get(call, "") if self.kind == "forbidden" else ""
        if needed:
            self.friendly += f" I need: {needed}."
        why = " ".join(message.split())[:MAX_MESSAGE]
        advice = needed and f"the bot's role needs {needed}, here or in the channel's settings"
        parts = (f"{call}: {status}, code {number}", why, advice or ADVICE.get(self.kind, ""))
        super().__init__(": ".join(filter(None, parts)))


class Banned(TransportRateLimited):
    """Cloudflare answered in place of Discord: this address is shut out after too many bad requests."""


def bad_token() -> TransportFatal:
    return TransportFatal(
        "Discord does not accept the bot token: reset it under Bot at discord.com/developers/applications, "
        "and put the new one where transports.discord.token refers to"
    )


def explain(call: str, error: Exception, *, maybe_posted: bool) -> PostFailed:
    """Return our error for the library's; *maybe_posted*: the call posts and may have reached Discord."""
    match error:
        case discord.LoginFailure(__cause__=discord.HTTPException() as why):
            return _answered(call, why, maybe_posted=maybe_posted)
        case discord.HTTPException():
            return _answered(call, error, maybe_posted=maybe_posted)
        case discord.RateLimited(retry_after=seconds):
            return TransportRateLimited(f"{call}: rate limited", retry_after=seconds)
        case _:
            return TransportUnavailable(f"{call}: {type(error).__name__}", maybe_posted=maybe_posted)


def _answered(call: str, error: discord.HTTPException, *, maybe_posted: bool) -> PostFailed:
    if (status := error.status) == 429:
        return _limited(call, error)
    if status >= 500:
        return TransportUnavailable(f"{call}: HTTP {status}", maybe_posted=maybe_posted)
    if status < 400 or not _is_discords(error):
        return TransportUnavailable(f"{call}: HTTP {status}, and not from Discord")
    number = error.code if isinstance(error.code, int) else 0
    if number in PASSING:
        return TransportUnavailable(f"{call}: {status}, code {number}, which will pass")
    return DiscordRefused(call, status, number, error.text)


def _limited(call: str, error: discord.HTTPException) -> PostFailed:
    """Tell Discord's own 429 from Cloudflare's, as the library does."""
    headers = error.response.headers
    if not headers.get("Via") or not _is_discords(error):
        return Banned(f"{call}: this address is shut out by Cloudflare (429)", retry_after=BANNED_S)
    return TransportRateLimited(
        f"{call}: rate limited", retry_after=retry_seconds(headers.get("Retry-After", ""))
    )


def _is_discords(error: discord.HTTPException) -> bool:
    """Return whether Discord's API itself answered: in JSON, by the header that the library reads."""
    return error.response.headers.get("Content-Type") == "application/json"


FROM_OUTSIDE = (aiohttp.ClientError, OSError, discord.DiscordException)
"""Errors that are not bugs of ours; a TimeoutError is an OSError."""
