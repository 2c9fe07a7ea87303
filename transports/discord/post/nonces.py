"""From a post's key to its nonces in Discord. Pure.

A key is that of the message it answers, ``discord:GUILD:CHANNEL:MESSAGE``, with ``?`` and an id after it for a
question, ``+`` and an id for a file.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256

from threads.scheduled_messages import due_of
from transports.discord.api.snowflake import at, before, is_snowflake

MAX_NONCE = 25
"""Characters, as Discord documents it (resources/message#create-message)."""

CLOCKS_S = 60
"""Seconds that our clock may be ahead of Discord's."""


def nonce_of(key: str, part: int = 0) -> str:
    """Return the nonce of part *part* of the post *key*: sent twice within minutes, Discord stores it once."""
    digest = sha256(f"{part}\0{key}".encode("utf-8", "replace")).digest()
    return b32encode(digest).decode().lower()[:MAX_NONCE]


def question_of(key: str) -> str:
    """Return the id of the message that a post's *key* names, "" if that is a press, a command or nothing said."""
    named = _named(key)
    return named if is_snowflake(named) else ""


def since_of(key: str) -> str:
    """Return an id before the post *key*: of the message it names, or of the time it was scheduled for."""
    due = due_of(_named(key))
    return before(at(due), CLOCKS_S) if due else question_of(key)


def _named(key: str) -> str:
    return re.split(r"[?+]", key, maxsplit=1)[0].rpartition(":")[2]
