"""The signs that the bot is at work: reactions, the thread's status and title, the live draft, prompts.

| message is | event                   | sign                                                         | becomes |
|------------|-------------------------|--------------------------------------------------------------|---------|
| unknown    | `Taken`                 | eyes, in a channel or behind another turn of the thread;     | taken   |
|            |                         | where they come off late, only behind another turn           |         |
| any        | `TurnStarted`           | session "processing", "is thinking…", the first one's title  | running |
| running    | tools, waits            | other words; session "suspended" while a person must decide  | running |
| running    | text, tools             | the draft                                                    | running |
| running    | 90 s without a change   | the words again: Slack takes them away after 2 min           | running |
| any        | `TurnSettled`           | eyes away, session "active", no words, draft closed unless   | unknown |
|            |                         | handed over, and the outcome's reaction if nothing was said  |         |

An outcome without a post of its own gets its reaction (`OUTCOMES`).

Nothing here is urgent: all of it waits behind final texts, and only the newest state is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio
from cachetools import FIFOCache
from pydantic import JsonValue

from threads.model import (
    Outcome,
    Resumed,
    StagesChanged,
    Taken,
    TextDelta,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    Waiting,
)
from transports.shared.live import presence as shared
from transports.shared.live.activity import RunningTools
from transports.shared.live.presence import LiveMessage
from transports.slack.api.json_fields import is_direct, is_stamp
from transports.slack.api.web_api import Web
from transports.slack.live.draft import Draft, LiveDrafts
from transports.slack.live.latest_wins import LatestCalls
from transports.slack.live.reactions import Reactions
from transports.slack.live.thread_status import (
    IDLE,
    SESSION,
    WORDS,
    Status,
    session_arguments,
    status,
    title_of,
    words_arguments,
)
from transports.slack.markdown.links import Links, hosts_in

PROMPTS = "assistant.threads.setSuggestedPrompts"

EYES = "eyes"
OUTCOMES: dict[Outcome, str] = {
    "merged": "heavy_plus_sign",
    "stopped": "octagonal_sign",
    "refused": "no_entry_sign",
    "failed": "x",
    "dead_letter": "x",
    "undelivered": "warning",
}

HEARTBEAT_S = 90.0
MOST_RENAMED = 1_000
MOST_JOBS = 2_000


@dataclass(slots=True)
class _Message(LiveMessage):
    draft: Draft | None = None
    author: str = ""
    hosts: frozenset[str] = frozenset()
    title: str = ""
    status_shown: Status = IDLE
    waiting: Waiting | None = None
    tools: RunningTools = field(default_factory=RunningTools)

    def note(self, event: TurnEvent) -> None:
        """Remember the tools that run, and what the turn waits for."""
        match event:
            case ToolStarted():
                self.tools.started(event)
            case ToolFinished():
                self.tools.finished(event)
            case Waiting():
                self.waiting = event
            case Resumed():
                self.waiting = None
            case _:
                pass


class Presence(shared.Presence[_Message, Draft]):
    """``allowed`` are hosts whose links stay live, ``prompts`` pairs of title and message."""

    def __init__(
        self,
        web: Web,
        *,
        team: str = "",
        allowed: frozenset[str] = frozenset(),
        prompts: Sequence[tuple[str, str]] = (),
        stream_in_channels: bool = False,
    ) -> None:
        super().__init__(_Message, MOST_JOBS)
        self._allowed, self._prompts = allowed, prompts
        self._drafts = LiveDrafts(web, team=team, in_channels=stream_in_channels)
        self._sessions: LatestCalls[ThreadId] = LatestCalls(web, SESSION)
        self._words: LatestCalls[ThreadId] = LatestCalls(web, WORDS)
        self._suggestions: LatestCalls[str] = LatestCalls(web, PROMPTS)
        self._reactions = Reactions(web)
        self._running: dict[ThreadId, str] = {}
        self._closing: list[ThreadId] = []
        self._heartbeats: dict[ThreadId, float] = {}
        self._heartbeat_due = anyio.Event()
        self._renamed: FIFOCache[ThreadId, None] = FIFOCache(MOST_RENAMED)

    async def run(self) -> None:
        queues = (self._sessions, self._words, self._suggestions, *self._reactions.queues)
        async with anyio.create_task_group() as tasks:
            for board in queues:
                tasks.start_soon(board.run)
            tasks.start_soon(self._run_heartbeats)
            tasks.start_soon(super().run)

    def quiet_in(self, thread: ThreadId) -> bool:
        """Return whether no message of the thread is waiting or at work."""
        return not any(live.thread == thread for live in self._messages.values())

    def closing_in(self, thread: ThreadId) -> bool:
        """Return whether a draft without a final text is being closed in the thread."""
        return thread in self._closing

    def links_for(self, thread: ThreadId, message_id: str, *, live: bool) -> Links:
        """Return which links an answer may have: to hosts that the person named, or that the settings allow."""
        known = self._messages.get((thread, message_id))
        return Links(self._allowed | (known.hosts if known else frozenset()), live)

    def posted(self, thread: ThreadId, message_id: str) -> None:
        """Note that the message has a post of its own, which says how it ended."""
        self._message(thread, message_id).posted = True

    def renamed(self, thread: ThreadId) -> None:
        """Note that a person gave the session a title, which then stays."""
        self._renamed[thread] = None

    async def clear(self, threads: Sequence[ThreadId]) -> None:
        """Clear the status that a killed process may have left in these threads."""
        for thread in threads:
            if thread not in self._running and is_stamp(thread.root):
                self._show_status(thread, IDLE, soon=False)

    async def home_opened(self, channel: str) -> None:
        """Suggest prompts. Without ``thread_ts``: with one, Slack says ok and shows nothing (agent view)."""
        prompts: list[JsonValue] = [{"title": title, "message": message} for title, message in self._prompts]
        if prompts:
            self._suggestions.request(channel, {"channel_id": channel, "prompts": prompts})

    def _note(self, live: _Message, message_id: str, event: TurnEvent) -> None:
        thread = live.thread
        match event:
            case Taken(text=text, author=author):
                live.author, live.hosts = author, hosts_in(text)
                has_status = is_direct(thread.channel) or self._reactions.late
                status_is_enough = has_status and (self._sessions.offered or self._words.offered)
                if not status_is_enough or self._running.get(thread, message_id) != message_id:
                    self._reactions.add(thread.channel, message_id, EYES)
            case TurnStarted(text=text, author=author):
                live.author, live.hosts = author or live.author, live.hosts | hosts_in(text)
                self._started(live, message_id, text)
            case _:
                live.note(event)
        self._feed_draft(live, message_id, event)
        if self._running.get(thread) == message_id:
            self._update_status(live, status(live.tools.words, live.waiting))

    def _started(self, live: _Message, message_id: str, text: str) -> None:
        thread, live.waiting = live.thread, None
        live.tools.clear()
        if not is_stamp(thread.root):
            return
        self._running[thread] = message_id
        live.title = title_of(text) if message_id == thread.root else ""
        live.status_shown = status("", None)
        self._show_status(thread, live.status_shown, title=self._title(live))

    def _update_status(self, live: _Message, wanted: Status) -> None:
        if wanted == live.status_shown:
            return
        if wanted.session != live.status_shown.session:
            self._sessions.request(live.thread, session_arguments(live.thread, wanted, self._title(live)))
        live.status_shown = wanted
        self._words.request(live.thread, words_arguments(live.thread, wanted), soon=False)
        self._schedule_heartbeat(live.thread)

    def _title(self, live: _Message) -> str:
        return "" if live.thread in self._renamed else live.title

    def _repeat_status(self, live: _Message, message_id: str) -> None:
        """Repeat the status after a message of the draft began or ended: Slack removes it then."""
        if self._running.get(live.thread) == message_id:
            self._words.request(live.thread, words_arguments(live.thread, live.status_shown), soon=False)

    def _show_status(self, thread: ThreadId, wanted: Status, *, title: str = "", soon: bool = True) -> None:
        self._sessions.request(thread, session_arguments(thread, wanted, title), soon=soon)
        self._words.request(thread, words_arguments(thread, wanted), soon=soon)
        if wanted == IDLE:
            self._heartbeats.pop(thread, None)
        else:
            self._schedule_heartbeat(thread)

    def _schedule_heartbeat(self, thread: ThreadId) -> None:
        self._heartbeats.pop(thread, None)
        self._heartbeats[thread] = anyio.current_time() + HEARTBEAT_S
        self._heartbeat_due.set()

    async def _run_heartbeats(self) -> None:
        while True:
            while not self._heartbeats:
                self._heartbeat_due = anyio.Event()
                await self._heartbeat_due.wait()
            thread, due = next(iter(self._heartbeats.items()))
            await anyio.sleep_until(due)
            live = self._messages.get((thread, self._running.get(thread, "")))
            if self._heartbeats.get(thread) != due:
                continue
            if live is None:
                del self._heartbeats[thread]
                continue
            self._words.request(thread, words_arguments(thread, live.status_shown), soon=False)
            self._schedule_heartbeat(thread)

    def _feed_draft(self, live: _Message, message_id: str, event: TurnEvent) -> None:
        if (
            live.draft is None
            and isinstance(event, TextDelta | ToolStarted | StagesChanged)
            and is_stamp(live.thread.root)
        ):
            links = self.links_for(live.thread, message_id, live=False)
            live.draft = Draft(
                live.thread,
                self._drafts,
                links,
                to=live.author,
                on_message=partial(self._repeat_status, live, message_id),
            )
            self.soon(live.draft.run)
        if live.draft:
            live.draft.feed(event)

    def _settle(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        live = self._messages.get((thread, message_id))
        reaction = OUTCOMES.get(end.outcome)
        known = live is not None or not end.again  # else an earlier process may have posted how it ended
        if reaction and known and is_stamp(message_id) and not (live and live.posted):
            self._reactions.add(thread.channel, message_id, reaction)

    def _forget(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        live = self._messages.pop((thread, message_id), None)
        self._reactions.remove(thread.channel, message_id, EYES, maybe=end.again)
        if self._running.get(thread) == message_id:
            del self._running[thread]
            self._show_status(thread, IDLE)
        if live and live.draft:
            self._closing.append(thread)
            if not self.soon(partial(self._close, thread, live.draft, end.outcome)):
                self._closing.remove(thread)

    async def _close(self, thread: ThreadId, draft: Draft, outcome: Outcome) -> None:
        try:
            await draft.close(outcome)
        finally:
            self._closing.remove(thread)
