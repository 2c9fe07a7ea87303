"""The live text of one turn: what the model has written so far, until the final text takes its place.

| state  | event                                             | next   |
|--------|---------------------------------------------------|--------|
| hidden | something to show, and a slot is free             | live   |
| live   | its first stream is refused                       | hidden |
| either | `hand_over`: the final text goes into its messages| over   |
| either | `close`: no final text will come                  | over   |

A turn is never held up: what cannot be shown now comes with the final text. While a draft is ``hidden`` the status of
the thread tells what the turn does.

The number of live drafts in a workspace is limited (`LiveDrafts`): each live message needs a call when its answer is
final; all of these calls must get through within seconds. A draft without a slot waits.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from threads.model import Outcome, ThreadId, TurnEvent
from transports.slack.api.json_fields import is_direct
from transports.slack.api.web_api import WebApi
from transports.slack.live.draft_calls import DraftCalls
from transports.slack.live.latest_wins import MethodAvailability
from transports.slack.live.native_stream import APPEND, NativeStream
from transports.slack.live.unfinished_draft import close_messages
from transports.slack.markdown.links import Links
from transports.slack.post.rewrite import DraftMessage

STREAMS = 6
"""The most streams that are live at once in a workspace. chat.stopStream is tier 2 (20 a minute): all their final
texts get through within 20 s."""


FIRST_AFTER_S = 1.5
"""How long a stream in a channel waits to begin: there an answer that is whole by then comes at once, for all."""


class LiveDrafts:
    """The limit of live drafts in a workspace, and where Slack has streams."""

    def __init__(self, web: WebApi, *, team: str = "", in_channels: bool = True) -> None:
        self.web, self.team = web, team
        self.offer = MethodAvailability()
        self.slots = anyio.Semaphore(STREAMS)
        self._in_channels = in_channels

    def offered(self, channel: str, to: str) -> bool:
        """Return whether an answer to *to* can be live there: in a channel a stream must be for a person."""
        direct = is_direct(channel)
        return self.offer.in_channel(channel) and (
            direct or (self._in_channels and to.startswith(("U", "W")))
        )

    @property
    def spacing(self) -> float:
        """How long a live draft leaves between its calls, in seconds."""
        return self.web.limits.spacing(APPEND, STREAMS - self.slots.value)


class LiveDraft:
    """``to`` is the person it answers; ``on_change`` is called when a message of it begins or ends, or it is hidden.

    ``handed_over``: the final text went into its messages, so there is nothing to close.

    Events come in by `feed`, calls go out in `run`. It is due at ``begins_at``, on the clock of `anyio.current_time`.
    """

    def __init__(
        self,
        thread: ThreadId,
        shared: LiveDrafts,
        links: Links,
        *,
        to: str,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.hidden = False
        self._thread, self._shared, self._on_change = thread, shared, on_change
        self._calls = DraftCalls(shared.web)
        self._stream = NativeStream(self._calls, thread, (to, shared.team), links, shared.offer)
        self._changed = anyio.Event()
        self.handed_over = False
        self.begins_at = anyio.current_time() + (0 if is_direct(thread.channel) else FIRST_AFTER_S)

    @property
    def messages(self) -> tuple[DraftMessage, ...]:
        """Return its messages, oldest first, with what they show."""
        return tuple(live.message for live in self._stream.posts)

    @property
    def lost(self) -> bool:
        """Return whether Slack may show another message of this draft, whose ts is unknown."""
        return self._calls.lost

    def feed(self, event: TurnEvent) -> None:
        """Take in an event of the turn. Never blocks."""
        if not self._stream.silent:
            self._stream.feed(event)
            self._changed.set()

    async def run(self) -> None:
        """Show the draft until it is over."""
        await self._calls.run(self._show)

    async def hand_over(self) -> tuple[DraftMessage, ...]:
        """End all calls, and return the messages: the final text is written over them."""
        self.handed_over = True
        await self._calls.end()
        return self.messages

    async def close(self, outcome: Outcome) -> None:
        """End the draft without a final text, as `close_messages` does."""
        if not self.handed_over:
            await self.hand_over()
            await close_messages(self._shared.web, self._thread, self._stream.posts, outcome)

    async def _show(self) -> None:
        stream = self._stream
        await self._wait_until_due()
        self._hide(not self._shared.slots.value)
        async with self._shared.slots:
            self._hide(not self._shared.offer.in_channel(self._thread.channel))
            while not (stream.silent or self.hidden):
                await self._wait_until_due()
                before = [live.open for live in stream.posts]
                await stream.flush()
                if [live.open for live in stream.posts] != before:
                    self._on_change()
                await anyio.sleep(self._shared.spacing)
        self._hide(not stream.posts)

    def _hide(self, hidden: bool) -> None:
        if self.hidden != hidden and not self._calls.over:
            self.hidden = hidden
            self._on_change()

    async def _wait_until_due(self) -> None:
        while (wait := self._stream.due(now := anyio.current_time()) - now) > 0:
            self._changed = anyio.Event()
            with anyio.move_on_after(wait):
                await self._changed.wait()
