"""What a chat platform must do for us, and nothing it may know about us."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence, Sized
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from threads.errors import PostFailed
from threads.model import Attachment, Outgoing, Sink, Spoken, ThreadId, TurnEvent

LinkState = Literal["starting", "connected", "reconnecting", "disconnected", "stopped"]
"""How a link is: `disconnected` is after several failures in a row, and it keeps trying; `stopped` is for good."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do.

    ``find``: a post can be looked up by its key. ``lands_late``: a post may still appear after the process that sent
    it died. ``asks``: someone is there who can answer a question.
    ``earlier``: a thread may be older than the bot's part in it, and what was said before can be read.
    ``files``: it takes files from us.
    """

    find: bool = False
    lands_late: bool = True
    asks: bool = True
    earlier: bool = False
    files: bool = False


@contextmanager
def progress(out: Sized) -> Iterator[None]:
    """Note in a `PostFailed` that leaves the block whether more parts are *out* than when it began."""
    before = len(out)
    try:
        yield
    except PostFailed as error:
        error.progressed = len(out) > before
        raise


class Transport(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def state(self) -> LinkState: ...

    @property
    def trouble(self) -> str:
        """Return what else is wrong, in a clause for people; blank if nothing is."""
        ...

    @property
    def silent_s(self) -> float | None:
        """Return for how many seconds nothing came over the link, not even a sign of life; None while it is down."""
        ...

    async def serve(self, sink: Sink) -> None:
        """Hand every event to *sink* until cancelled or, for a console, until the input ends.

        Reconnects by itself; raises `threads.errors.TransportFatal` when only a person can mend it.
        """
        ...

    async def reconnected(self) -> None:
        """Return when the platform can be reached, as far as is known; at once while connected."""
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

    def link(self, thread: ThreadId) -> str:
        """Return the web address that leads a person to the thread; blank while there is none."""
        ...

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show what goes on in the turn of this message. Never blocks, never raises, may drop."""
        ...

    async def earlier(self, thread: ThreadId, before: str) -> Sequence[Spoken]:
        """Return the lines of the thread before that message, oldest first, not too many. Raises `PostFailed`."""
        ...

    def download(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the content of a file that came with a message. Raises `threads.errors.FileUnavailable`."""
        ...

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Post a file to the thread under this name; it is there only until this returns. Raises `PostFailed`."""
        ...
