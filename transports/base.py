"""What a chat platform must do for us, and nothing it may know about us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from threads.model import Outgoing, Sink, ThreadId, TurnEvent


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do.

    ``find``: a post can be looked up by its key. ``lands_late``: a post may still appear after the process that sent
    it died. ``asks``: someone is there who can answer a question. ``max_text``: how many characters a post may hold.
    """

    find: bool = False
    lands_late: bool = True
    asks: bool = True
    max_text: int = 1_000_000


class Transport(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def serve(self, sink: Sink) -> None:
        """Hand every event to *sink* until cancelled or, for a console, until the input ends."""
        ...

    async def post(self, outgoing: Outgoing) -> str:
        """Post and return the platform's id of the post. Raises `threads.errors.PostFailed`.

        A thread with a blank root is the channel itself: the post begins a thread of its own there.
        """
        ...

    async def find(self, thread: ThreadId, key: str) -> str | None:
        """Return the platform's id of the post with this key, if the platform shows one.

        Raises `threads.errors.PostFailed` when the platform cannot be asked now.
        """
        ...

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show what goes on in the turn of this message. Never blocks, never raises, may drop."""
        ...
