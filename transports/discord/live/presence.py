"""The signs that the bot is at work: reactions, typing, the live draft.

| message is | event                  | sign                                                              | becomes |
|------------|------------------------|-------------------------------------------------------------------|---------|
| unknown    | `Taken`                | eyes                                                              | taken   |
| any        | `TurnStarted`          | typing, in the thread, which is opened for it                     | running |
| running    | text, tools, waits     | the draft                                                         | running |
| running    | `Waiting` for a person | no typing, until `Resumed`                                        | running |
| running    | its post is out        | no typing                                                         | running |
| any        | `TurnSettled`          | eyes become the outcome's reaction, no typing, draft closed       | unknown |
|            |                        | unless handed over                                                |         |

Where an earlier process had a hand in it (``again``) its eyes may be there, and go too. What is withdrawn is gone,
and has no sign. Only messages get reactions: a press or a slash command is none.

Where a message is, is where its reaction goes. A direct message, one in a channel itself, and the one that a thread
was opened from (it has the thread's id) are in the channel; any other is in the thread or, in place, in the channel,
as `Places` knows. A forum's first post has the thread's id too, and is in the thread: Discord does not find it in
the channel, and is asked there.

Nothing here is urgent: all of it goes out at its own pace beside final texts, and says only the newest there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

from threads.model import (
    Outcome,
    Resumed,
    Taken,
    TextDelta,
    ThreadId,
    ToolStarted,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    Waiting,
)
from transports.discord.api.rest import Rest
from transports.discord.api.snowflake import is_snowflake
from transports.discord.api.values import DIRECT
from transports.discord.live.draft import Draft
from transports.discord.live.pacing import Pace
from transports.discord.live.reactions import Reactions
from transports.discord.live.typing_indicator import Typing
from transports.discord.post.rewrite import DraftMessage
from transports.discord.post.thread_opening import Places
from transports.shared.live import presence as shared
from transports.shared.live.presence import LiveMessage

Streaming = Literal["edits", "progress", "off"]

EYES = "👀"
OUTCOMES: dict[Outcome, str] = {
    "answered": "✅",
    "merged": "➕",  # noqa: RUF001 - that is the sign
    "stopped": "🛑",
    "refused": "🚫",
    "failed": "❌",
    "dead_letter": "❌",
    "undelivered": "⚠️",
}

MOST_JOBS = 4_000


@dataclass(slots=True)
class _Live(LiveMessage[DraftMessage]):
    """``started``: its turn runs."""

    draft: Draft | None = None
    started: bool = False


class Presence(shared.Presence[_Live, DraftMessage]):
    def __init__(
        self,
        rest: Rest,
        places: Places,
        *,
        streaming: Streaming = "edits",
        typing: bool = True,
        reactions: bool = True,
    ) -> None:
        super().__init__(_Live, MOST_JOBS)
        self._rest, self._places, self._pace = rest, places, Pace()
        self._streaming = streaming
        self._reactions = Reactions(rest, self._pace, self.soon) if reactions else None
        self._typing = Typing(rest, places, self._pace, self.soon) if typing else None

    def posted(self, thread: ThreadId, message_id: str) -> None:
        """Note that the post of the message is out: nobody types any more."""
        if live := self._messages.get((thread, message_id)):
            live.posted = True
            self._quiet(live)

    def _note(self, live: _Live, message_id: str, event: TurnEvent) -> None:
        match event:
            case Taken(again=again):
                self._mark(live.thread, message_id, EYES, again=again)
            case TurnStarted():
                live.started = True
                self._busy(live)
            case Waiting(seconds=math.inf):
                self._quiet(live)
            case Resumed():
                self._busy(live)
            case _:
                pass
        self._draw(live, message_id, event)

    def _busy(self, live: _Live) -> None:
        if self._typing and live.thread.root and live.started and not live.posted:
            self._typing.begin(live.thread)

    def _quiet(self, live: _Live) -> None:
        if self._typing and live.started:
            self._typing.end(live.thread)

    def _draw(self, live: _Live, message_id: str, event: TurnEvent) -> None:
        begins = isinstance(event, TextDelta | ToolStarted | Waiting) and live.thread.root
        if live.draft is None and begins and self._streaming != "off":
            live.draft = Draft(live.thread, message_id, self._rest, self._places, self._pace, self._streaming)
            self.soon(live.draft.run)
        if live.draft:
            live.draft.feed(event)

    def _mark(self, thread: ThreadId, message_id: str, emoji: str, *, again: bool) -> None:
        if self._reactions and is_snowflake(message_id):
            places = self._places_of(thread, message_id)
            self._reactions.mark(message_id, emoji, places, maybe=EYES if again else "")

    def _places_of(self, thread: ThreadId, message_id: str) -> list[str]:
        """Return the channels that the message may be in, the likeliest first."""
        if thread.workspace == DIRECT or not thread.root:
            return [thread.channel]
        spot = self._places.known(thread)
        inside = message_id != thread.root and (spot is None or spot.channel == thread.root)
        return [thread.root, thread.channel] if inside else [thread.channel, thread.root]

    def _settle(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        if reaction := OUTCOMES.get(end.outcome):
            self._mark(thread, message_id, reaction, again=end.again)

    def _forget(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        if live := self._messages.pop((thread, message_id), None):
            self._quiet(live)
            if live.draft:
                self.soon(partial(live.draft.close, end.outcome))
