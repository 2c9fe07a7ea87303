"""What a chat platform must do for the bot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence, Sized
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from threads.errors import PostFailed
from threads.model import Attachment, Earlier, Outgoing, Sink, ThreadId, TurnEvent

LinkState = Literal["starting", "connected", "standby", "reconnecting", "disconnected", "stopped"]
"""The state of a link. `disconnected` after several failures in a row still keeps trying; `stopped` is final.

`standby`: another worker holds the only session that the platform allows; posts go out all the same.
"""


CONSOLE_USER = "you"
"""Who started the program by hand, in a terminal or on its page."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a platform can do.

    ``find``: a post can be looked up by its key. ``lands_late``: a post may still appear after its process died.
    ``asks``: someone can answer a question. ``earlier``: what was said in a thread before can be read. ``files``: it
    takes files. ``closes``: a thread or a channel may take no posts, as `Transport.ensure_open` finds out.
    ``hides_threads``: not everybody in a channel sees each thread of it.
    """

    find: bool = False
    lands_late: bool = True
    asks: bool = True
    earlier: bool = False
    files: bool = False
    closes: bool = False
    hides_threads: bool = False


@contextmanager
def progress(out: Sized) -> Iterator[None]:
    """Note in a `PostFailed` from the block whether it got more parts *out*."""
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
        """Return what else is wrong, in a clause for people, or a blank."""

    @property
    def silent_s(self) -> float | None:
        """Return the age of the last frame in seconds; None while the link is down, or if there are no frames."""

    async def serve(self, sink: Sink) -> None:
        """Hand every event to *sink* until cancelled or, for a console, until the input ends.

        Reconnects by itself; raises `threads.errors.TransportFatal` when only a person can fix it.
        """

    async def reconnected(self) -> None:
        """Return when the platform can be reached, as far as is known."""

    async def post(self, outgoing: Outgoing) -> str:
        """Post and return the platform's id of the post. Raises `threads.errors.PostFailed`.

        A thread with a blank root is the channel itself: the post begins a thread of its own there.
        """

    async def ensure_open(self, thread: ThreadId, message_id: str) -> None:
        """Return if an answer to the message can be posted, as far as is known. Raises `PostFailed`.

        Asks the platform only if it refused a post there before.
        """

    async def find(self, thread: ThreadId, key: str) -> str | None:
        """Return the platform's id of the post with this key, if the platform shows one.

        Raises `threads.errors.PostFailed` when the platform cannot be asked now.
        """

    def link(self, thread: ThreadId) -> str:
        """Return the web address of the thread, or a blank."""

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show what goes on in the turn of this message. Never blocks, never raises, may drop."""

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        """Return some lines of the thread before that message, and after the other one if it is given.

        Raises `PostFailed`.
        """

    def download(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the content of a file that came with a message. Raises `threads.errors.FileUnavailable`."""

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Post a file to the thread under this name; the caller deletes the file after. Raises `PostFailed`."""


@runtime_checkable
class SearchableTransport(Protocol):
    """A transport whose platform has a search of its own, and lets the bot use it."""

    async def search_platform(self, thread: ThreadId, message_id: str, words: str) -> Sequence[str]:
        """Return lines that the author of this message may read. Raises `PostFailed`."""
