"""A word to whoever runs the bot when no model could answer: one note for an outage, not one for each message."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime

import anyio
from anyio.abc import TaskGroup

from bot.errors import AllProvidersFailed
from threads import wording
from threads.errors import Code, PostFailed
from threads.model import Outgoing, ThreadId

log = logging.getLogger(__name__)

AGAIN_AFTER_S = 600.0
"""The same kind of failure is not told again for this long."""


class Escalation:
    """Posts to ``channel`` ("transport:workspace:channel"); with None it only logs."""

    def __init__(
        self,
        tasks: TaskGroup,
        channel: str | None,
        post: Callable[[Outgoing], Awaitable[str]],
        now: Callable[[], datetime],
    ) -> None:
        self._tasks, self._post, self._now = tasks, post, now
        self._thread = ThreadId.parse(f"{channel}:") if channel else None
        self._told_at: dict[Code, float] = {}

    def __call__(self, error: AllProvidersFailed) -> None:
        """Take up a failure; returns at once."""
        log.warning("model.all_failed: no model could answer: %s", error, extra={"code": error.code})
        now = anyio.current_time()
        if self._thread is None or now - self._told_at.get(error.code, -AGAIN_AFTER_S) < AGAIN_AFTER_S:
            return
        self._told_at[error.code] = now
        key = f"escalation:{error.code}:{self._now().isoformat(timespec='seconds')}"
        text = wording.escalated([wording.because(model, failure.code) for model, failure in error.chain])
        self._tasks.start_soon(self._send, Outgoing(self._thread, key, text, "notice"))

    async def _send(self, note: Outgoing) -> None:
        try:
            await self._post(note)
        except PostFailed as error:
            log.warning("escalation.failed: not posted: %s", error, extra={"code": error.code})
