"""One envelope's way to the bot."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Literal

from tests.fakes.slack.records import Json

if TYPE_CHECKING:
    from tests.fakes.slack.link import Link

State = Literal["waiting", "sent", "acked", "lost"]


class Delivery:
    """One envelope's way to the bot. ``await`` it (10 s at most) for the ack's payload; lost is an error."""

    __slots__ = (
        *("kind", "payload", "attempt", "reason", "state", "answer", "envelopes", "link", "acked_at"),
        *("sent_at", "_timer", "_done"),
    )

    def __init__(self, kind: str, payload: Json) -> None:
        self.kind, self.payload = kind, payload
        self.attempt = 0
        """0 for the first, then ``retry_attempt``."""
        self.reason = ""
        self.state: State = "waiting"
        self.answer: Any = None
        self.envelopes: list[str] = []
        self.link: Link | None = None
        self.sent_at = 0.0
        self.acked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] | None = None

    @property
    def acked(self) -> bool:
        return self.state == "acked"

    def __await__(self) -> Generator[Any, None, Any]:
        return self.delivered().__await__()

    async def delivered(self, limit: float = 10.0) -> Any:
        """Wait for the ack; return its payload, None for an empty one."""
        if self.state in ("waiting", "sent"):
            self._done = self._done or asyncio.get_running_loop().create_future()
            async with asyncio.timeout(limit):
                await asyncio.shield(self._done)
        if self.state == "lost":
            raise RuntimeError(f"never acknowledged: {self.kind} {self.payload.get('event_id', '')}")
        return self.answer

    def settle(self, state: State) -> None:
        self.state = state
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._done and not self._done.done():
            self._done.set_result(None)

    def at(self, timer: asyncio.TimerHandle) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = timer
