"""The live text of one turn: what the model has written so far, until the final text takes its place.

| state  | event                                             | next   |
|--------|---------------------------------------------------|--------|
| silent | something to show, and a slot is free             | live   |
| live   | its stream is refused                             | silent, as a post that is edited |
| either | `hand_over`: the final text goes into its messages| over   |
| either | `close`: no final text will come                  | over   |

Each call shows the newest state, so a draft that waits misses nothing. A turn is never held up: what cannot be shown
now comes with the final text.

The number of live drafts in a workspace is limited (`LiveDrafts`): each live message needs a call when its answer is
final; all of these calls must get through within seconds. A draft without a slot waits; its thread's status shows
meanwhile that the turn runs.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from threads.model import (
    Outcome,
    StagesChanged,
    TextDelta,
    TextReset,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnStarted,
)
from transports.slack.api.web_api import Web
from transports.slack.live.draft_calls import DraftCalls
from transports.slack.live.edited_post import UPDATE, EditedPost
from transports.slack.live.native_stream import APPEND, LivePost, NativeStream
from transports.slack.live.unfinished_draft import close_messages
from transports.slack.markdown.links import Links
from transports.slack.post.rewrite import DraftMessage

log = logging.getLogger(__name__)

STREAMS, POSTS = 6, 8
"""The most streams and posts that are live at once in a workspace. chat.stopStream is tier 2 (20 a minute) and
chat.update tier 3 (50 a minute): all their final texts get through within 20 s. A stream needs one call of each."""


class LiveDrafts:
    """The limit of live drafts in a workspace, and whether Slack has streams there."""

    def __init__(self, web: Web, *, team: str = "", in_channels: bool = False) -> None:
        self.web, self.team = web, team
        self.streams = self.edits = True
        self._in_channels = in_channels
        self._free_slots = {APPEND: anyio.Semaphore(STREAMS), UPDATE: anyio.Semaphore(POSTS)}

    def streams_in(self, channel: str) -> bool:
        """Return whether a live answer there is a stream: in a channel only the asker would see it."""
        return self.streams and (self._in_channels or channel.startswith("D"))

    @asynccontextmanager
    async def slot(self, *, stream: bool) -> AsyncIterator[str]:
        """Wait for a slot, and yield its method: an edited post if all streams are taken."""
        method = APPEND if stream and self._free_slots[APPEND].value else UPDATE
        async with self._free_slots[method]:
            yield method

    def spacing(self, method: str) -> float:
        """Return how long a live draft leaves between its calls, in seconds."""
        most = STREAMS if method == APPEND else POSTS
        return self.web.limits.spacing(method, most - self._free_slots[method].value)


class Draft:
    """``to`` is the person it answers; ``on_message`` is called when a message of the draft begins or ends.

    Events come in by `feed`, calls go out in `run`.
    """

    def __init__(
        self,
        thread: ThreadId,
        shared: LiveDrafts,
        links: Links,
        *,
        to: str,
        on_message: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_message = on_message
        self._thread, self._shared = thread, shared
        self._calls = DraftCalls(shared.web)
        self._changed = anyio.Event()
        self._handed_over = False
        stream = shared.streams_in(thread.channel)
        self._native = NativeStream(self._calls, thread, (to, shared.team), links) if stream else None
        self._edited = EditedPost(self._calls, thread, links)

    @property
    def messages(self) -> tuple[DraftMessage, ...]:
        """Return its messages, oldest first, with what they show."""
        return tuple(live.message for live in self._posts)

    @property
    def lost(self) -> bool:
        """Return whether Slack may show another message of this draft, whose ts is unknown."""
        return self._calls.lost

    def feed(self, event: TurnEvent) -> None:
        """Take in an event of the turn. Never blocks; the text it holds is bounded."""
        for writer in self._writers:
            match event:
                case TextDelta(text):
                    writer.add_text(text)
                case TextReset() | TurnStarted():
                    writer.reset()
                case ToolStarted():
                    writer.started(event)
                case ToolFinished():
                    writer.finished(event)
                case StagesChanged():
                    writer.show_stages(event)
                case _:
                    return
        self._changed.set()

    async def run(self) -> None:
        """Show the draft until it is over."""
        await self._calls.run(self._show)

    async def hand_over(self) -> tuple[DraftMessage, ...]:
        """End all calls, and return the messages: the final text is written over them."""
        self._handed_over = True
        await self._calls.end()
        return self.messages

    async def close(self, outcome: Outcome) -> None:
        """End the draft without a final text, as `close_messages` does."""
        if not self._handed_over:
            self._handed_over = True
            await self._calls.end()
            await close_messages(self._shared.web, self._thread, self._posts, outcome)

    @property
    def _posts(self) -> list[LivePost]:
        return self._native.posts if self._native and self._native.posts else self._edited.posts

    @property
    def _writers(self) -> list[NativeStream | EditedPost]:
        """Return the writers that get events: both, until it is decided which one shows them."""
        if self._native and self._native.posts:
            return [self._native]
        return [self._native, self._edited] if self._native else [self._edited]

    async def _show(self) -> None:
        await self._wait_until_due(self._edited if self._native is None else self._native)
        while not self._calls.over:
            async with self._shared.slot(stream=self._native is not None) as method:
                writer = self._native if self._native and method == APPEND else self._edited
                if writer is self._edited:
                    self._native = None
                    if not self._shared.edits:
                        return
                await self._run_writer(writer)
            if not writer.unavailable:
                return
            if writer is self._edited:
                self._shared.edits = False
                log.warning(
                    "live.no_edits: Slack lets nothing be edited here: answers appear when they are whole"
                )
                return
            if writer.unavailable == "workspace" and self._shared.streams:
                self._shared.streams = False
                log.warning(
                    "live.no_streams: Slack has no streams here: live answers are posts that are edited"
                )
            self._native = None

    async def _run_writer(self, writer: NativeStream | EditedPost) -> None:
        while not writer.done:
            await self._wait_until_due(writer)
            before = [live.open for live in writer.posts]
            await writer.flush()
            if [live.open for live in writer.posts] != before:
                self._on_message()
            await anyio.sleep(self._shared.spacing(writer.method))

    async def _wait_until_due(self, writer: NativeStream | EditedPost) -> None:
        while (wait := writer.due(now := anyio.current_time()) - now) > 0:
            self._changed = anyio.Event()
            with anyio.move_on_after(wait):
                await self._changed.wait()
