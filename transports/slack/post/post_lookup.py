"""What killed processes left in a thread: one look there serves all of its messages.

Whatever an earlier process sent has landed by the time of the first look, and what this one sends it knows itself. So
the first look is kept, and only what this process tried to post without an answer needs another.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import anyio
from cachetools import LRUCache

from threads.model import ThreadId
from transports.slack.api import thread_history
from transports.slack.api.json_fields import Shape, instant, string
from transports.slack.api.web_api import Web
from transports.slack.post.post_tags import orphans, since_of

KEPT = 1_000
"""Threads whose first look is kept; the one that was not asked about for longest is looked into again."""


@dataclass(slots=True)
class Look:
    """Our messages in a thread after ``since``, and the ts of those that were ``left`` unfinished."""

    since: str
    said: list[Shape]
    left: list[str]


@dataclass(slots=True)
class _Kept:
    looking: anyio.Lock = field(default_factory=anyio.Lock)
    look: Look | None = None


class Lookups:
    """``ours`` are the ids that our messages carry."""

    def __init__(self, web: Web, ours: Collection[str]) -> None:
        self._web, self._ours = web, ours
        self._kept: LRUCache[ThreadId, _Kept] = LRUCache(KEPT)

    async def first(self, thread: ThreadId, key: str, live: Collection[str]) -> Look:
        """Return what an earlier process left since the message that *key* names. Raises `PostFailed`.

        *live* are the ts of the live messages there, which are being worked on.
        """
        kept = self._kept.setdefault(thread, _Kept())
        async with kept.looking:  # who asks meanwhile is served by the same look
            if kept.look is None or not _reaches(kept.look.since, since_of(key)):
                kept.look = await self.again(thread, since_of(key), live)
            return kept.look

    def known(self, thread: ThreadId, since: str) -> Look | None:
        """Return the first look if it was made already, and reached as far back as *since*."""
        look = self._kept[thread].look if thread in self._kept else None
        return look if look and _reaches(look.since, since) else None

    async def again(
        self, thread: ThreadId, since: str, live: Collection[str], *, urgent: bool = True
    ) -> Look:
        """Return what is there now. Raises `PostFailed`."""
        all_said = await thread_history.read(self._web, thread.channel, thread.root, since, urgent=urgent)
        said = [m for m in all_said if string(m, "user") in self._ours or string(m, "bot_id") in self._ours]
        left = orphans(said, self._ours, since, live) if thread.root and since else []
        return Look(since, said, left)


def _reaches(since: str, wanted: str) -> bool:
    return since == wanted or bool(since and wanted and instant(since) <= instant(wanted))
