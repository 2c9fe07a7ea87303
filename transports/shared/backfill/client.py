"""A client of a platform that does not say what was missed: marks know how far each channel has been read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from threads.model import Earlier, Sink, Taken, ThreadId, TurnEvent, TurnSettled
from threads.store.disk import Disk, Offload
from threads.store.mark_file import MarkStore
from transports.shared.backfill.catch_up import Recent
from transports.shared.backfill.heard_lines import HeardLines
from transports.shared.backfill.marks import Marks
from transports.shared.backfill.message_time import Scale
from transports.shared.client import A, Client, Connection

S = TypeVar("S")
C = TypeVar("C", bound=Connection[Any])

Hold = Callable[[str, Callable[[], Awaitable[None]], Callable[[], None]], Awaitable[None]]
"""Does work of which only one process may do it at a time; see `threads.ports.Store.hold`."""


async def hold_alone(_: str, work: Callable[[], Awaitable[None]], __: Callable[[], None]) -> None:
    """Do the work: there is no other process."""
    await work()


class MarkedClient(Client[S, A, C]):
    """What has to be remembered over a restart is in *marks*; only one process at a time does what *hold* gets."""

    scale: Scale

    def __init__(
        self,
        options: S,
        data: Path,
        *,
        disk: Disk,
        offload: Offload,
        now: Callable[[], datetime],
        recent: Recent,
        marks: MarkStore,
        hold: Hold = hold_alone,
        name: str = "",
    ) -> None:
        super().__init__(options, data, disk=disk, offload=offload, now=now, name=name)
        self._hold, self._recent = hold, recent
        self._marks, self._heard = Marks(marks, offload, now, self.scale), HeardLines(self.scale)

    async def serve(self, sink: Sink) -> None:
        """Receive until cancelled. Raises `TransportFatal` when only a person can fix what is wrong."""
        await self._offload(self._marks.open)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._marks.keep, lambda: self.state == "connected")
            await super().serve(sink)

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show the event; before the platform has said who we are, later."""
        if isinstance(event, Taken) or (isinstance(event, TurnSettled) and event.outcome == "answered"):
            self._heard.take(thread, message_id)
        super().show(thread, message_id, event)

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        """See `Transport.earlier`. The platform is asked only if there may be any such lines."""
        heard_all = after and self._hears_all and self._marks.heard_all_since(after)
        if heard_all and self._heard.has_all_after(thread, after):
            return Earlier()
        return await self._read_earlier(thread, before, after)

    @property
    def _hears_all(self) -> bool:
        """Whether everything that is said comes in here, and now."""
        return self.state == "connected"

    @abstractmethod
    async def _read_earlier(self, thread: ThreadId, before: str, after: str) -> Earlier:
        """Ask the platform for lines; see `Transport.earlier`."""

    async def _link(self, api: A, sink: Sink, tasks: TaskGroup, connected: Callable[[], None]) -> None:
        def up() -> None:
            self._heard.clear()
            connected()

        await super()._link(api, sink, tasks, up)
