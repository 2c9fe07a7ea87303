"""Slack as a transport: what comes in goes through `intake`, posts through `posting`, signs of life by `presence`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, TransportUnavailable
from threads.model import (
    Attachment,
    Outgoing,
    QuestionClosed,
    Sink,
    Spoken,
    Taken,
    ThreadId,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    message_key,
)
from threads.store.disk import Disk, Offload
from transports.base.presses import UNDECIDED, decided
from transports.base.transport import Capabilities, LinkState
from transports.shared.backfill.catch_up import Recent
from transports.shared.backfill.marks import Marks
from transports.shared.delivery.reachability import Reach
from transports.shared.link.proxy import own_origin
from transports.shared.link.supervisor import Supervisor
from transports.shared.live.background_calls import TIDY_AFTER_S, insist
from transports.slack.api import thread_history
from transports.slack.api.json_fields import instant, is_stamp, stamp
from transports.slack.api.socket_mode import SocketModeLink
from transports.slack.api.user_names import UserNames
from transports.slack.api.web_api import Web, open_web
from transports.slack.events.catch_up import OUTCOMES_FIRST_S
from transports.slack.events.downloads import open_download
from transports.slack.events.intake import Intake
from transports.slack.events.parse_message import Me, spoken
from transports.slack.events.timestamps import STAMPS
from transports.slack.live.draft import Draft
from transports.slack.live.presence import Presence
from transports.slack.manifest import Features, missing_scopes
from transports.slack.post.post_tags import since_of
from transports.slack.post.posting import Asked, Posting

log = logging.getLogger(__name__)

BUSY_WITHIN_S = 3600.0
MOST_CLEARED = 50
"""Threads that may still show that a killed process was at work: Slack itself forgets after an hour."""

MOST_EARLY = 2_000
"""Events of turns that are kept until Slack has said who we are; beyond, the oldest are not shown."""

ENTER_WITHIN_S = 60.0
CLOSED_EVERY_S = 1.0
"""How often it is asked whether a draft is closed, before its thread is swept."""

REDIRECT = "https://slack.com/app_redirect"
"""Leads to a channel of any workspace (docs.slack.dev, "Deep linking into Slack")."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings say. ``links`` are hosts whose links stay live, ``prompts`` pairs of title and message."""

    bot_token: str = field(repr=False)
    app_token: str = field(repr=False)
    api_base_url: str | None = None
    features: Features = field(default_factory=Features)
    prompts: tuple[tuple[str, str], ...] = ()
    feedback: bool = True
    stream_in_channels: bool = False
    bots: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    max_age_s: float = 600


@dataclass(frozen=True, slots=True)
class _Room:
    """What there is once Slack has said who we are."""

    web: Web
    me: Me
    intake: Intake
    posting: Posting
    presence: Presence
    names: UserNames
    url: str
    opened_at: float = field(default_factory=anyio.current_time)


@dataclass(slots=True)
class _Untidy:
    """A thread where something unfinished may stand since a ts, left by killed processes or, ``again``, by this one.

    ``disturbed``: a turn has begun there.
    """

    since: str
    again: bool = False
    tidying: bool = False
    disturbed: bool = False


class Slack:
    """One app in one workspace; how far it has read is kept in the folder *data*."""

    name = "slack"
    capabilities = Capabilities(find=True, lands_late=True, asks=True, earlier=True, files=True)
    trouble = ""

    def __init__(
        self,
        options: Options,
        data: Path,
        *,
        disk: Disk,
        offload: Offload,
        now: Callable[[], datetime],
        recent: Recent,
    ) -> None:
        self._options, self._offload, self._now, self._recent = options, offload, now, recent
        self._marks = Marks(disk, data / "slack-marks.json", offload, now, STAMPS)
        self._supervisor = Supervisor(self.name)
        self._room: _Room | None = None
        self._entered = anyio.Event()
        self._reach = Reach()
        self._early: deque[tuple[ThreadId, str, TurnEvent]] = deque(maxlen=MOST_EARLY)
        self._untidy: dict[ThreadId, _Untidy] = {}
        self._tidying = anyio.Lock()

    @property
    def state(self) -> LinkState:
        return self._supervisor.state

    @property
    def silent_s(self) -> float | None:
        return self._supervisor.silent_s

    async def serve(self, sink: Sink) -> None:
        """Receive until cancelled. Raises `TransportFatal` when only a person can mend what is wrong."""
        await self._offload(self._marks.open)
        options = self._options
        async with (
            open_web(options.api_base_url, options.bot_token) as web,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._marks.keep, lambda: self.state == "connected")
            tasks.start_soon(web.until_refused)
            await self._supervisor.run(partial(self._link, web, sink, tasks))

    async def reconnected(self) -> None:
        """Return when the link is up, and Slack answers again if it could not be reached at all."""
        await self._supervisor.reconnected()
        room = await self._enter()
        await self._reach.regained(partial(room.web.ask, "api.test"))

    async def post(self, outgoing: Outgoing) -> str:
        room = await self._enter()
        answers = outgoing.key == message_key(outgoing.thread, outgoing.reply_to)
        asked = outgoing.thread, outgoing.reply_to
        draft = room.presence.draft_of(*asked) if answers else None
        live = await draft.hand_over() if draft else ()
        links = room.presence.links_for(*asked, live=True)
        with self._reach.watched():
            posted = await room.posting.post(outgoing, links, live)
        if answers:
            room.presence.posted(*asked)
            await self._sweep_lost(room, draft, *asked)
        return posted

    async def find(self, thread: ThreadId, key: str) -> str | None:
        room = await self._enter()
        found = await room.posting.find(thread, key, live=room.presence.live_in(thread))
        message_id = key.rpartition(":")[2]
        question = "?" in message_id
        if found and not question and key == message_key(thread, message_id):
            room.presence.posted(thread, message_id)
            if draft := room.presence.draft_of(thread, message_id):
                await room.posting.clear(thread, key, await draft.hand_over())
                await self._sweep_lost(room, draft, thread, message_id)
        return found

    async def _sweep_lost(self, room: _Room, draft: Draft | None, thread: ThreadId, message_id: str) -> None:
        """Delete the messages of a draft that Slack took without an answer.

        The answer counts as posted only after that: a death in between would leave the draft beside it for good.
        """
        since = since_of(message_key(thread, message_id))
        if draft and draft.lost and thread.root and since:
            try:
                await room.posting.sweep(thread, since)
            except PostFailed:
                self._leave(thread, message_id, again=True)

    def link(self, thread: ThreadId) -> str:
        """Return the thread's permalink, in the form that ``chat.getPermalink`` gives, or its channel's."""
        url = self._room.url if self._room else ""
        if not url:
            return f"{REDIRECT}?team={thread.workspace}&channel={thread.channel}"
        message = f"/p{thread.root.replace('.', '')}" if is_stamp(thread.root) else ""
        return f"{url}archives/{thread.channel}{message}"

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show it; before Slack has said who we are, later."""
        room = self._room
        if room is None:
            self._early.append((thread, message_id, event))
        else:
            room.presence.show(thread, message_id, event)
            if isinstance(event, QuestionClosed) and (asked := room.posting.closed(event.key)):
                room.presence.soon(partial(self._close, room, asked, event))
            if isinstance(event, TurnSettled):
                for asked in room.posting.left_open(message_key(thread, message_id)):
                    room.presence.soon(partial(room.posting.close_question, asked, UNDECIDED))
                self._settled(room, thread, message_id, event)
            elif isinstance(event, Taken | TurnStarted) and thread in self._untidy:
                self._untidy[thread].disturbed = True
            if pressed := room.intake.buttons.taken(message_id, event):
                room.presence.soon(partial(room.intake.buttons.retire, pressed))

    async def _close(self, room: _Room, asked: Asked, event: QuestionClosed) -> None:
        who = await room.names.of(event.by) if event.by else ""
        await room.posting.close_question(asked, decided(event, who))

    def _leave(self, thread: ThreadId, message_id: str, *, again: bool) -> None:
        """Note that something unfinished may stand there: it looks as if it went on, or like a second answer."""
        since = since_of(message_key(thread, message_id))
        if since and thread.root:
            left = self._untidy.setdefault(thread, _Untidy(since))
            left.since, left.again = min(left.since, since, key=instant), left.again or again

    def _settled(self, room: _Room, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        if end.interrupted or end.outcome == "undelivered":  # its draft was handed over and not taken
            self._leave(thread, message_id, again=not end.again)
        if (left := self._untidy.get(thread)) and not left.tidying:
            left.tidying = room.presence.soon(partial(self._tidy, room, thread, left))

    async def _tidy(self, room: _Room, thread: ThreadId, left: _Untidy) -> None:
        """Take away what is unfinished in a thread; while there is something to do there, that waits for the end."""
        if not left.again:
            await anyio.sleep_until(room.opened_at + TIDY_AFTER_S)
        while room.presence.closing_in(thread):  # noqa: ASYNC110 - many may wait for many
            await anyio.sleep(CLOSED_EVERY_S)

        async def tidy() -> None:
            while room.presence.quiet_in(thread):
                async with (
                    self._tidying
                ):  # one thread at a time, or what was missed would wait for all of them
                    left.disturbed = not room.presence.quiet_in(thread)
                    if not left.disturbed and await room.posting.sweep(
                        thread, left.since, again=left.again, undisturbed=lambda: not left.disturbed
                    ):
                        self._untidy.pop(thread, None)
                        return

        try:
            await insist(tidy, thread)
        finally:
            left.tidying = False

    async def earlier(self, thread: ThreadId, before: str) -> Sequence[Spoken]:
        room = await self._enter()
        said = [
            message
            for message in await thread_history.read(room.web, thread.channel, thread.root, "")
            if instant(stamp(message, "ts") or "0") < instant(before if is_stamp(before) else "9" * 10)
        ]
        await room.names.learn(said)
        return [line for message in said if (line := spoken(message, room.me, room.names.known))]

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        room, options = await self._enter(), self._options
        own = own_origin(options.api_base_url)
        async with open_download(room.web.session, attachment, token=options.bot_token, own=own) as chunks:
            yield chunks

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        room = await self._enter()
        await room.posting.attach(thread, key, file, name)

    async def _enter(self) -> _Room:
        """Wait until Slack has said who we are; a post may be due before that. Raises `TransportUnavailable`."""
        with anyio.move_on_after(ENTER_WITHIN_S):
            await self._entered.wait()
        if self._room is None:
            raise TransportUnavailable("Slack has not yet said who we are")
        return self._room

    async def _link(self, web: Web, sink: Sink, tasks: TaskGroup, connected: Callable[[], None]) -> None:
        """Be connected until the link is down; the supervisor runs this again and again."""
        options = self._options
        if self._room is None:
            self._room = await self._furnished(web, sink, tasks)
            self._entered.set()
            while self._early:
                self.show(*self._early.popleft())
        room = self._room

        def up() -> None:
            self._reach.found()
            connected()
            room.intake.missed()

        take, heard = room.intake.take, self._supervisor.heard
        await SocketModeLink(app_token=options.app_token, client=web.client, take=take, heard=heard).run(up)

    async def _furnished(self, web: Web, sink: Sink, tasks: TaskGroup) -> _Room:
        options, identity = self._options, await web.identity()
        for clause in missing_scopes(identity.scopes, options.features):
            log.warning("slack.scope_missing: %s; `threadfast manifest slack` has all of them", clause)
        me = Me(identity.team, identity.user, identity.bot_id, identity.name)
        presence = Presence(
            web,
            team=me.team,
            allowed=options.links,
            prompts=options.prompts,
            stream_in_channels=options.stream_in_channels,
        )
        tasks.start_soon(presence.run)
        owing = any(isinstance(event, Taken) and event.again for *_, event in self._early)
        posting, names = Posting(web, identity, feedback=options.feedback), UserNames(web)
        intake = Intake(
            tasks,
            web,
            me,
            self._marks,
            sink,
            presence,
            names,
            recent=self._recent,
            now=self._now,
            bots=options.bots,
            max_age_s=options.max_age_s,
            on_address=posting.answer_at,
            read_from=anyio.current_time() + OUTCOMES_FIRST_S * owing,
        )
        presence.soon(partial(presence.clear, await self._recent(BUSY_WITHIN_S, MOST_CLEARED)))
        return _Room(web, me, intake, posting, presence, names, identity.url)
