"""The signs that the bot is at work: typing or eyes, the live draft, and how it ended.

The sign is typing. Where nobody would see that at once there are eyes as well: on a message that opens a thread, and
on one that waits behind another one of its thread.

| event                  | what is shown                                                                  |
|------------------------|--------------------------------------------------------------------------------|
| `Taken`                | eyes, or typing                                                                |
| `TurnStarted`          | typing, in the thread, which is opened for it                                  |
| text, tools, waits     | the draft, and no typing once it is there                                      |
| `Waiting` for a person | no typing, until `Resumed`                                                     |
| its post is out        | no typing                                                                      |
| `TurnSettled`          | the outcome's reaction in place of eyes, no typing, draft closed unless handed |
|                        | over                                                                           |

After a restart (``again``) the eyes of the earlier process may be there, and are removed too. A withdrawn message is
gone and gets no sign. Only messages get reactions, not presses or slash commands.

A reaction needs the channel of its message. A direct message, a message in a channel itself, and the one that opened
a thread (it has the thread's id) are in the channel. Any other is in the thread or, in place, in the channel;
`Destinations` knows. A forum's first post has the thread's id and is in the thread: it is tried there second.

Nothing here is urgent: all of it goes out at its own pace beside final texts, and only the newest state is sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from threads.model import (
    Outcome,
    Resumed,
    StagesChanged,
    Taken,
    TextDelta,
    ThreadId,
    ToolStarted,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    Waiting,
)
from transports.discord.api.options import Options
from transports.discord.api.rest import Rest
from transports.discord.api.snowflake import is_snowflake
from transports.discord.api.values import DIRECT
from transports.discord.live.draft import LiveDraft
from transports.discord.live.pacing import Pace
from transports.discord.live.reactions import Reactions
from transports.discord.live.typing_indicator import Typing
from transports.discord.post.thread_opening import Destinations
from transports.shared.live import presence as shared
from transports.shared.live.presence import LiveMessage

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
class _Live(LiveMessage):
    """``again``: an earlier process may have left eyes on it. ``shown``: its draft or its post shows the work."""

    draft: LiveDraft | None = None
    types: bool = False
    again: bool = False
    shown: bool = False


class Presence(shared.Presence[_Live, LiveDraft]):
    def __init__(self, rest: Rest, destinations: Destinations, options: Options) -> None:
        super().__init__(_Live, MOST_JOBS)
        self._rest, self._destinations, self._pace = rest, destinations, Pace()
        self._streaming = options.streaming
        self._reactions = Reactions(rest, self._pace, self.soon) if options.reactions else None
        self._typing = Typing(rest, destinations, self._pace, self.soon) if options.typing else None

    async def before_post(self, thread: ThreadId, message_id: str) -> None:
        """End the typing, so that none is shown after the answer to the message."""
        if live := self._messages.get((thread, message_id)):
            await self._finish_typing(live)

    def posted(self, thread: ThreadId, message_id: str) -> None:
        """Note that the post of the message is out: nobody types any more."""
        if live := self._messages.get((thread, message_id)):
            live.posted = True
            self._stop_typing(live)

    def _note(self, live: _Live, message_id: str, event: TurnEvent) -> None:
        match event:
            case Taken(again=again):
                live.again = again
                if self._gets_eyes(live, message_id):
                    self._react(live.thread, message_id, EYES, again=again)
                else:
                    self._start_typing(live)
            case TurnStarted():
                self._start_typing(live)
            case Waiting(seconds=math.inf):
                self._stop_typing(live)
            case Resumed() if live.types:
                self._start_typing(live)
            case _:
                pass
        self._update_draft(live, message_id, event)

    def _gets_eyes(self, live: _Live, message_id: str) -> bool:
        thread = live.thread
        if self._typing is None or self._reactions is None:
            return self._typing is None
        is_behind = any(other.thread == thread and other is not live for other in self._messages.values())
        return is_behind or message_id == thread.root or not thread.root

    def _start_typing(self, live: _Live) -> None:
        live.types = True
        if self._typing and live.thread.root and not (live.shown or live.posted):
            self._typing.begin(live.thread)

    def _stop_typing(self, live: _Live) -> None:
        if self._typing and live.types:
            self._typing.end(live.thread)

    async def _finish_typing(self, live: _Live) -> None:
        live.shown = True
        if self._typing and live.types:
            await self._typing.finish(live.thread)

    def _update_draft(self, live: _Live, message_id: str, event: TurnEvent) -> None:
        begins = isinstance(event, TextDelta | ToolStarted | Waiting | StagesChanged) and live.thread.root
        if live.draft is None and begins and self._streaming != "off":
            live.draft = LiveDraft(
                live.thread,
                message_id,
                self._rest,
                self._destinations,
                self._pace,
                self._streaming,
                before_first=partial(self._finish_typing, live),
            )
            self.soon(live.draft.run)
        if live.draft:
            live.draft.feed(event)

    def _react(self, thread: ThreadId, message_id: str, emoji: str, *, again: bool) -> None:
        if self._reactions and is_snowflake(message_id):
            channels = self._channels_of(thread, message_id)
            self._reactions.set(message_id, emoji, channels, possible=EYES if again else "")

    def _channels_of(self, thread: ThreadId, message_id: str) -> list[str]:
        """Return the channels that the message may be in, the likeliest first."""
        if thread.workspace == DIRECT or not thread.root:
            return [thread.channel]
        destination = self._destinations.known(thread)
        inside = message_id != thread.root and (destination is None or destination.channel == thread.root)
        return [thread.root, thread.channel] if inside else [thread.channel, thread.root]

    def _settle(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        live = self._messages.get((thread, message_id))
        if reaction := OUTCOMES.get(end.outcome):
            self._react(thread, message_id, reaction, again=end.again or bool(live and live.again))

    def _forget(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        if live := self._messages.pop((thread, message_id), None):
            self._stop_typing(live)
            if live.draft:
                self.soon(partial(live.draft.close, end.outcome))
