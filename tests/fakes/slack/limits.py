"""Slack's rate limits: a token bucket per method of the workspace, and per channel for posts."""

from __future__ import annotations

import math
from collections.abc import Callable

TIER_2, TIER_3, TIER_4 = 20, 50, 100
"""Calls a minute; a bucket holds a minute's worth."""

PER_MINUTE = {
    **dict.fromkeys(("chat.startStream", "chat.stopStream"), TIER_2),
    **dict.fromkeys(
        (
            *("chat.update", "chat.delete", "conversations.history", "conversations.replies"),
            *(
                "users.conversations",
                "conversations.info",
                "bots.info",
                "reactions.add",
                "agents.sessions.setStatus",
            ),
        ),
        TIER_3,
    ),
    **dict.fromkeys(("reactions.remove", "usergroups.list"), TIER_2),
    "chat.appendStream": TIER_4,
    "chat.postEphemeral": TIER_4,
    "chat.postMessage": 300,
    "assistant.threads.setStatus": 60,
    **dict.fromkeys(
        (
            *("assistant.threads.setSuggestedPrompts", "users.info", "files.info"),
            *("files.getUploadURLExternal", "files.completeUploadExternal"),
        ),
        TIER_4,
    ),
}
POSTS_PER_SECOND, POSTS_AT_ONCE = 1.0, 5
"""chat.postMessage in one channel: about one a second, short bursts are let through."""


class Buckets:
    def __init__(self, clock: Callable[[], float], *, on: bool, scale: float) -> None:
        self.clock, self.on, self.scale = clock, on, scale
        self._levels: dict[tuple[str, str], tuple[float, float]] = {}
        self._until: dict[tuple[str, str], float] = {}

    def take(self, method: str, channel: str) -> int:
        """Whole seconds to wait, 0 when the call may pass."""
        if not self.on:
            return 0
        wait = 0
        if rate := PER_MINUTE.get(method):
            wait = self._take((method, ""), rate / 60, rate)
        if method == "chat.postMessage" and not wait:
            wait = self._take((method, channel), POSTS_PER_SECOND, POSTS_AT_ONCE)
        return wait

    def pause(self, method: str, wait: float, channel: str = "") -> None:
        """Forbid *method* (in *channel*) for so many seconds, as a Retry-After does."""
        self._until[method, channel] = self.clock() + wait

    def impatient(self, method: str, channel: str) -> bool:
        """Whether a call comes before the Retry-After of its method is over."""
        return any(self.clock() < self._until.get((method, place), 0.0) for place in ("", channel))

    def _take(self, key: tuple[str, str], per_second: float, most: float) -> int:
        per_second *= self.scale
        now = self.clock()
        level, at = self._levels.get(key, (most, now))
        level = min(most, level + (now - at) * per_second)
        passes = level >= 1
        self._levels[key] = (level - passes, now)
        if passes:
            return 0
        wait = math.ceil((1 - level) / per_second)
        self.pause(key[0], wait, key[1])
        return wait
