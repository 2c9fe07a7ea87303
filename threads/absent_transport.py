"""The outlet of a transport that an earlier process served and this one does not. It posts nothing."""

from __future__ import annotations

from .errors import TransportRejected
from .model import Outgoing, ThreadId, TurnEvent


class AbsentOutlet:
    """A `threads.delivery.Outlet`."""

    finds = lands_late = asks = False

    async def post(self, outgoing: Outgoing) -> str:
        raise TransportRejected(f"{outgoing.thread.transport} is not served by this process")

    async def find(self, thread: ThreadId, key: str) -> str | None:  # noqa: ARG002
        return None

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show nothing."""
