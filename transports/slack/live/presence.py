"""The signs that the bot is at work: one for each message, the live draft, titles, prompts.

The sign of a message is the first of these that Slack offers there and that would not be late:

| message is                            | signs                                 |
|---------------------------------------|---------------------------------------|
| behind another one of the thread      | eyes                                  |
| direct                                | the session of the agent view, words, eyes |
| in a thread of a channel              | words, eyes                           |
| in a channel, with no thread open yet | eyes, words                           |

| event         | what is shown                                                                           |
|---------------|-----------------------------------------------------------------------------------------|
| `Taken`       | the sign; with a session the title of a thread's first message                          |
| waits         | the words of the wait, whatever the sign is; a session is suspended until it ends       |
| text, tools   | the draft, in place of words that only say that the bot is thinking; where no stream    |
|               | can show it: words of the tool or stage at hand, and a session, which has a stop button |
| `TurnSettled` | no sign; the draft is closed unless handed over; the outcome's reaction (`OUTCOMES`) if |
|               | it has no post of its own                                                               |

Nothing here is urgent: all of it waits behind final texts, and only the newest state is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

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
from transports.slack.api.web_api import WebApi
from transports.slack.live.draft import LiveDraft, LiveDrafts
from transports.slack.live.latest_wins import LatestCalls
from transports.slack.live.reactions import Reactions
from transports.slack.live.thread_status import (
    SESSION,
    THINKING,
    Session,
    StatusWords,
    session_arguments,
    session_of,
    title_of,
    words_of_wait,
    words_of_work,
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

MOST_RENAMED = 1_000
MOST_JOBS = 2_000

Sign = Literal["session", "words", "eyes"]


@dataclass(slots=True)
class _Message(LiveMessage):
    """``said`` are the words that it shows. ``again``: an earlier process may have given it a sign.

    ``hidden``: its turn has something to show, and no stream for it; ``stage`` is the playbook's at hand.
    """

    draft: LiveDraft | None = None
    hidden: bool = False
    running: RunningTools = field(default_factory=RunningTools)
    stage: str = ""
    author: str = ""
    hosts: frozenset[str] = frozenset()
    title: str = ""
    sign: Sign | None = None
    session: Session | None = None
    waiting: Waiting | None = None
    said: str = ""
    words_may_stay: bool = False
    again: bool = False

    @property
    def words(self) -> str:
        """The words that it should show in its thread. A draft is a sign of its own."""
        if not is_stamp(self.thread.root):
            return ""
        if self.waiting:
            return words_of_wait(self.waiting)
        if self.hidden:
            return words_of_work(self.running.words or self.stage)
        return THINKING if self.sign == "words" and not (self.draft and self.draft.messages) else ""


class Presence(shared.Presence[_Message, LiveDraft]):
    """``allowed`` are hosts whose links stay live, ``prompts`` pairs of title and message."""

    def __init__(
        self,
        web: WebApi,
        *,
        team: str = "",
        allowed: frozenset[str] = frozenset(),
        prompts: Sequence[tuple[str, str]] = (),
        stream_in_channels: bool = True,
    ) -> None:
        super().__init__(_Message, MOST_JOBS)
        self._allowed, self._prompts = allowed, prompts
        self._drafts = LiveDrafts(web, team=team, in_channels=stream_in_channels)
        self._sessions: LatestCalls[ThreadId] = LatestCalls(web, SESSION, on_refused=self._give_another)
        self._words = StatusWords(web, self._give_another)
        self._reactions = Reactions(web, self._give_another)
        self._signs: Mapping[Sign, LatestCalls[ThreadId] | Reactions] = {
            "session": self._sessions,
            "words": self._words,
            "eyes": self._reactions,
        }
        self._suggestions: LatestCalls[str] = LatestCalls(web, PROMPTS)
        self._closing: list[ThreadId] = []
        self._beginning: deque[LiveDraft] = deque()
        self._renamed: FIFOCache[ThreadId, None] = FIFOCache(MOST_RENAMED)

    async def run(self) -> None:
        queues = (self._sessions, self._words, self._suggestions, *self._reactions.queues)
        async with anyio.create_task_group() as tasks:
            for queue in queues:
                tasks.start_soon(queue.run)
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

    def answering(self, thread: ThreadId, message_id: str) -> None:
        """Note that the answer is on its way: Slack takes away words that came before it, and no others."""
        if live := self._messages.get((thread, message_id)):
            live.words_may_stay |= self._words.cancel(thread)

    def posted(self, thread: ThreadId, message_id: str) -> None:
        """Note that the message has a post of its own, which says how it ended."""
        self._message(thread, message_id).posted = True

    def renamed(self, thread: ThreadId) -> None:
        """Note that a person gave the session a title, which then stays."""
        self._renamed[thread] = None

    async def clear(self, threads: Sequence[ThreadId]) -> None:
        """Clear the status that a killed process may have left in these threads."""
        for thread in threads:
            if is_stamp(thread.root) and self.quiet_in(thread):
                self._words.say(thread, "")
                self._sessions.request(thread, session_arguments(thread, "active"), soon=False)

    async def home_opened(self, channel: str) -> None:
        """Suggest prompts. Without ``thread_ts``: with one, Slack says ok and shows nothing (agent view)."""
        prompts: list[JsonValue] = [{"title": title, "message": message} for title, message in self._prompts]
        if prompts:
            self._suggestions.request(channel, {"channel_id": channel, "prompts": prompts})

    def _note(self, live: _Message, message_id: str, event: TurnEvent) -> None:
        match event:
            case Taken(text=text, author=author, again=again):
                live.author, live.hosts, live.again = author, hosts_in(text), again
                live.title = title_of(text) if message_id == live.thread.root else ""
                self._give_sign(live, message_id)
            case TurnStarted(text=text, author=author):
                live.author, live.hosts = author or live.author, live.hosts | hosts_in(text)
                live.waiting = None
            case Waiting():
                live.waiting = event
            case Resumed():
                live.waiting = None
            case ToolStarted():
                live.running.started(event)
            case ToolFinished():
                live.running.finished(event)
            case StagesChanged():
                live.stage = next((stage.name for stage in event.stages if stage.state == "running"), "")
            case _:
                pass
        self._feed_draft(live, message_id, event)
        self._update(live)

    def _give_sign(self, live: _Message, message_id: str) -> None:
        thread = live.thread
        offered = [sign for sign in self._signs_of(live, message_id) if self._offers(sign, thread)]
        on_time = [sign for sign in offered if not self._signs[sign].late]
        live.sign = next(iter(on_time + offered), None)
        match live.sign:
            case "eyes":
                self._reactions.add(thread.channel, message_id, EYES)
            case "session":
                live.session = session_of(live.waiting)
                self._sessions.request(thread, session_arguments(thread, live.session, self._title(live)))
            case _:
                self._update(live, soon=True)

    def _title(self, live: _Message) -> str:
        return "" if live.thread in self._renamed else live.title

    def _give_another(self) -> None:
        """Give the next sign to the messages whose sign was refused."""
        for (thread, message_id), live in self._messages.items():
            if live.sign and not self._offers(live.sign, thread):
                self._give_sign(live, message_id)

    def _offers(self, sign: Sign, thread: ThreadId) -> bool:
        return self._signs[sign].offered_in(thread.channel)

    def _signs_of(self, live: _Message, message_id: str) -> Sequence[Sign]:
        thread = live.thread
        eyes: tuple[Sign, ...] = ("eyes",) if is_stamp(message_id) else ()
        is_behind = any(other.thread == thread and other is not live for other in self._messages.values())
        if is_behind or not is_stamp(thread.root):
            return eyes
        if is_direct(thread.channel):
            return ("session", "words", *eyes)
        return (*eyes, "words") if message_id == thread.root else ("words", *eyes)

    def _update(self, live: _Message, *, soon: bool = False) -> None:
        """Show whether the turn waits, and for what; and what it does if no draft can show that."""
        thread, session = live.thread, session_of(live.waiting)
        if (live.session or (live.hidden and is_stamp(thread.root))) and live.session != session:
            live.session = session
            self._sessions.request(thread, session_arguments(thread, session))
        if live.said != (words := live.words):
            live.said = words
            self._words.say(thread, words, soon=soon)

    def _draft_changed(self, live: _Message, message_id: str) -> None:
        """Show the words again that Slack took away because a message of ours came."""
        if self._messages.get((live.thread, message_id)) is not live:
            return
        live.hidden = bool(live.draft and live.draft.hidden)
        if live.said and live.draft and live.draft.messages:
            self._words.gone(live.thread)
            live.said = ""
        self._update(live)

    def _feed_draft(self, live: _Message, message_id: str, event: TurnEvent) -> None:
        begins = isinstance(event, TextDelta | ToolStarted | StagesChanged) and is_stamp(live.thread.root)
        if live.draft is None and begins:
            live.hidden = not self._drafts.offered(live.thread.channel, live.author)
            if not live.hidden:
                links = self.links_for(live.thread, message_id, live=False)
                on_change = partial(self._draft_changed, live, message_id)
                live.draft = LiveDraft(live.thread, self._drafts, links, to=live.author, on_change=on_change)
                if is_direct(live.thread.channel):
                    self.soon(live.draft.run)
                elif len(self._beginning) < MOST_JOBS:
                    self._beginning.append(live.draft)
                    if len(self._beginning) == 1 and not self.soon(self._begin_drafts):
                        self._beginning.clear()
        if live.draft:
            live.draft.feed(event)

    async def _begin_drafts(self) -> None:
        """Begin each draft when it is time: most that wait for it are over by then."""
        while self._beginning:
            if not (draft := self._beginning[0]).handed_over:
                await anyio.sleep_until(draft.begins_at)
            self._beginning.popleft()
            if not draft.handed_over:
                self.soon(draft.run)

    def _settle(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        live = self._messages.get((thread, message_id))
        reaction = OUTCOMES.get(end.outcome)
        known = live is not None or not end.again  # else an earlier process may have posted how it ended
        if reaction and known and is_stamp(message_id) and not (live and live.posted):
            self._reactions.add(thread.channel, message_id, reaction)

    def _forget(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        live = self._messages.pop((thread, message_id), None)
        again = end.again or bool(live and live.again)
        self._reactions.remove(thread.channel, message_id, EYES, maybe=again)
        title, has_session = (self._title(live), live.session is not None) if live else ("", False)
        if has_session or (again and is_stamp(thread.root)):  # a killed process may have left one at work
            self._sessions.request(thread, session_arguments(thread, "active", title), soon=has_session)
        if live is None:
            return
        has_draft = bool(live.draft and live.draft.messages)
        if live.said and live.posted and not has_draft and not live.words_may_stay:
            self._words.gone(thread)  # Slack took them away as the answer came
        elif live.said:
            self._words.say(thread, "", soon=True)
        if live.draft and not live.draft.handed_over:
            self._closing.append(thread)
            if not self.soon(partial(self._close, thread, live.draft, end.outcome)):
                self._closing.remove(thread)

    async def _close(self, thread: ThreadId, draft: LiveDraft, outcome: Outcome) -> None:
        try:
            await draft.close(outcome)
        finally:
            self._closing.remove(thread)
