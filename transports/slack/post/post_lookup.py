"""Looks up what killed processes left in a thread: one scan serves all of its messages.

Everything that an earlier process sent has landed by the time of the first scan, and this process knows what it sends
itself. So the first scan is cached. Another one is due for a post that this process tried without an answer and,
where several workers serve, for each thread that was taken over since.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import anyio
from cachetools import LRUCache

from threads.model import ThreadId
from transports.slack.api import thread_history
from transports.slack.api.json_fields import Shape, instant, string
from transports.slack.api.web_api import WebApi
from transports.slack.post.post_tags import orphans, since_of

MOST_CACHED = 1_000
"""Threads whose first scan is cached."""

FRESH_S = 2.0
"""Seconds for which a scan tells all of a thread that may be taken over at any time.

The core asks no earlier than `threads.delivery.LATE_POST_S` after that, so a scan from before is older.
"""


@dataclass(slots=True)
class ThreadScan:
    """Our messages in a thread after ``since``, and the ts of the ``unfinished`` ones; it began at ``at``."""

    since: str
    messages: list[Shape]
    unfinished: list[str]
    at: float


@dataclass(slots=True)
class _CachedScan:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    scan: ThreadScan | None = None


class PostLookups:
    """``ours`` are the ids that our messages carry."""

    def __init__(self, web: WebApi, ours: Collection[str]) -> None:
        self._web, self._ours = web, ours
        self._cached: LRUCache[ThreadId, _CachedScan] = LRUCache(MOST_CACHED)

    async def first(self, thread: ThreadId, key: str, live: Collection[str]) -> ThreadScan:
        """Return what an earlier process left since the message that *key* names. Raises `PostFailed`.

        *live* are the ts of the live messages there, which are being worked on.
        """
        cached = self._cached.setdefault(thread, _CachedScan())
        async with cached.lock:  # callers that wait share the same scan
            old = (
                cached.scan and self._web.limits.is_shared and anyio.current_time() - cached.scan.at > FRESH_S
            )
            if cached.scan is None or old or not _reaches(cached.scan.since, since_of(key)):
                cached.scan = await self.again(thread, since_of(key), live)
            return cached.scan

    def known(self, thread: ThreadId, since: str) -> ThreadScan | None:
        """Return the first scan if it was made already, and reached as far back as *since*."""
        scan = self._cached[thread].scan if thread in self._cached else None
        return scan if scan and _reaches(scan.since, since) else None

    async def again(
        self, thread: ThreadId, since: str, live: Collection[str], *, urgent: bool = True
    ) -> ThreadScan:
        """Return what is there now. Raises `PostFailed`."""
        at = anyio.current_time()
        messages = await thread_history.read(self._web, thread.channel, thread.root, since, urgent=urgent)
        ours = [m for m in messages if string(m, "user") in self._ours or string(m, "bot_id") in self._ours]
        unfinished = orphans(ours, self._ours, since, live) if thread.root and since else []
        return ThreadScan(since, ours, unfinished, at)


def _reaches(since: str, wanted: str) -> bool:
    return since == wanted or bool(since and wanted and instant(since) <= instant(wanted))
