"""Discord's ids and the names that never change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]
EPOCH_MS = 1_420_070_400_000

GUILD = EVERYONE = "700000000000000001"
CHANNEL, CHANNEL2, FORUM, VOICE = (f"70000000000000010{number}" for number in range(1, 5))
APP, BOT = "700000000000000199", "700000000000000200"
U1, U2, U3 = (f"70000000000000020{number}" for number in range(1, 4))
DMS = {U1: "700000000000000301", U2: "700000000000000302", U3: "700000000000000303"}
BOT_ROLE, ROLE = "700000000000000401", "700000000000000402"

TEXT, DM, VOICE_TYPE, CATEGORY, NEWS, NEWS_THREAD, PUBLIC, PRIVATE, STAGE, FORUM_TYPE = (
    *(0, 1, 2, 4),
    *(5, 10, 11, 12, 13, 15),
)
KINDS = {
    "text": TEXT,
    "voice": VOICE_TYPE,
    "news": NEWS,
    "stage": STAGE,
    "forum": FORUM_TYPE,
    "category": CATEGORY,
}
THREAD_TYPES = (NEWS_THREAD, PUBLIC, PRIVATE)

SUPPRESS_EMBEDS, HAS_THREAD, EPHEMERAL, LOADING = 4, 32, 64, 128

PERMISSIONS = {
    "ADD_REACTIONS": 1 << 6,
    "VIEW_CHANNEL": 1 << 10,
    "SEND_MESSAGES": 1 << 11,
    "MANAGE_MESSAGES": 1 << 13,
    "EMBED_LINKS": 1 << 14,
    "ATTACH_FILES": 1 << 15,
    "READ_MESSAGE_HISTORY": 1 << 16,
    "MENTION_EVERYONE": 1 << 17,
    "MANAGE_THREADS": 1 << 34,
    "CREATE_PUBLIC_THREADS": 1 << 35,
    "SEND_MESSAGES_IN_THREADS": 1 << 38,
}
GRANTED = sum(bit for name, bit in PERMISSIONS.items() if name not in ("MANAGE_THREADS", "MANAGE_MESSAGES"))


class Snowflakes:
    """Ids by the wall clock (seconds), each greater than the one before."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall, self._last = wall, 0

    def __call__(self) -> str:
        self._last = max(self._last + 1, (int(self._wall() * 1000) - EPOCH_MS) << 22)
        return str(self._last)


def made_at(snowflake: str) -> float:
    """Seconds since 1970."""
    return ((int(snowflake) >> 22) + EPOCH_MS) / 1000


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
