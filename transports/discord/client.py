"""Discord as a transport: what comes in goes through `intake`, posts through `posting`, signs of life by `presence`.

REST and the gateway are two clients: answers get out while the gateway is down, and limits that REST has learned
outlive a reconnect.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

import aiohttp
import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, TransportUnavailable
from threads.model import (
    Attachment,
    Outgoing,
    QuestionClosed,
    Sink,
    Spoken,
    ThreadId,
    TurnEvent,
    TurnSettled,
    message_key,
)
from threads.store.disk import Disk, Offload
from transports.base.presses import UNDECIDED, decided
from transports.base.transport import Capabilities, LinkState
from transports.discord.api.channel_types import Channels
from transports.discord.api.gateway_link import GatewayLink
from transports.discord.api.rest import Rest, open_rest
from transports.discord.api.snowflake import is_snowflake
from transports.discord.api.values import DIRECT, Me
from transports.discord.events.command_registration import CommandRegistration
from transports.discord.events.downloads import open_download, open_session
from transports.discord.events.gateway_session import Session
from transports.discord.events.intake import Intake, IntakeOptions
from transports.discord.events.parse_message import spoken
from transports.discord.events.read_marks import SNOWFLAKES
from transports.discord.live.presence import Presence
from transports.discord.post.ephemeral_answers import Answers
from transports.discord.post.nonces import since_of
from transports.discord.post.posting import Posting
from transports.discord.post.rewrite import disarm
from transports.discord.post.thread_opening import Places
from transports.shared.backfill.catch_up import Recent
from transports.shared.backfill.marks import Marks
from transports.shared.delivery.reachability import Reach
from transports.shared.link.proxy import own_origin
from transports.shared.link.supervisor import Supervisor
from transports.shared.live.background_calls import TIDY_AFTER_S, insist

log = logging.getLogger(__name__)

MOST_EARLY = 2_000
"""Events of turns that are kept until Discord has said who we are; beyond, the oldest are not shown."""

ENTER_WITHIN_S = 60.0

WEB = "https://discord.com/channels"
"""Where a message is shown: below it, its guild, channel and id."""

UPLOAD_BYTES = 10 * 2**20
"""What a file may have where no guild says otherwise, as in a direct message."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings say. ``models`` are what `/model` completes, ``roles`` those that rights hang on."""

    token: str = field(repr=False)
    api_base_url: str | None = None
    gateway_url: str | None = None
    streaming: Literal["edits", "progress", "off"] = "edits"
    reactions: bool = True
    typing: bool = True
    in_place: frozenset[str] = frozenset()
    bots: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    models: tuple[str, ...] = ()
    max_age_s: float = 600


@dataclass(frozen=True, slots=True)
class _Room:
    """What there is once Discord has said who we are."""

    rest: Rest
    me: Me
    link: GatewayLink
    files: aiohttp.ClientSession
    places: Places
    answers: Answers
    intake: Intake
    posting: Posting
    presence: Presence
    opened_at: float = field(default_factory=anyio.current_time)


class Discord:
    """One bot; how far it has read, and which slash commands Discord was told, is kept in the folder *data*."""

    name = "discord"
    capabilities = Capabilities(find=True, lands_late=True, asks=True, earlier=True, files=True)

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
        self._marks = Marks(disk, data / "discord-marks.json", offload, now, SNOWFLAKES)
        self._registration = CommandRegistration(disk, data / "discord-commands.json", offload)
        self._supervisor = Supervisor(self.name)
        self._room: _Room | None = None
        self._entered = anyio.Event()
        self._reach = Reach()
        self._early: deque[tuple[ThreadId, str, TurnEvent]] = deque(maxlen=MOST_EARLY)

    @property
    def state(self) -> LinkState:
        return self._supervisor.state

    @property
    def silent_s(self) -> float | None:
        return self._supervisor.silent_s

    @property
    def trouble(self) -> str:
        return self._room.rest.trouble if self._room else ""

    async def serve(self, sink: Sink) -> None:
        """Receive until cancelled. Raises `TransportFatal` when only a person can mend what is wrong."""
        await self._offload(self._marks.open)
        options = self._options
        async with (
            open_rest(options.api_base_url, options.token) as rest,
            open_session() as files,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._marks.keep, lambda: self.state == "connected")
            tasks.start_soon(rest.until_refused)
            await self._supervisor.run(partial(self._link, rest, files, sink, tasks))

    async def reconnected(self) -> None:
        """Return when the link is up, and REST answers again if it could not be reached at all."""
        await self._supervisor.reconnected()
        room = await self._enter()
        await self._reach.regained(room.rest.ping)

    async def post(self, outgoing: Outgoing) -> str:
        room = await self._enter()
        answers = outgoing.key == message_key(outgoing.thread, outgoing.reply_to)
        asked = outgoing.thread, outgoing.reply_to
        draft = room.presence.draft_of(*asked) if answers else None
        live = await draft.hand_over() if draft else ()
        with self._reach.watched():
            posted = await room.posting.post(outgoing, live)
        if answers:
            room.presence.posted(*asked)
        if draft and draft.lost:
            where = outgoing.thread, outgoing.key
            try:  # before the answer counts as posted, or a death now would leave the draft beside it
                await room.posting.sweep(*where, live=room.presence.live_in(outgoing.thread))
            except PostFailed:
                room.presence.soon(partial(self._sweep, room, *where))
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
        return found

    def link(self, thread: ThreadId) -> str:
        """Return the address of the thread; where it is not known to be open, of the message that it began with."""
        spot = self._room.places.known(thread) if self._room else None
        if thread.workspace == DIRECT or not thread.root:
            where = thread.channel
        elif spot and spot.channel != thread.channel:
            where = spot.channel
        else:
            where = f"{thread.channel}/{thread.root}"
        return f"{WEB}/{thread.workspace}/{where}"

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        """Show it; before Discord has said who we are, later."""
        if (room := self._room) is None:
            self._early.append((thread, message_id, event))
            return
        room.presence.show(thread, message_id, event)
        if isinstance(event, QuestionClosed):
            who = f"<@{event.by}>" if event.by else ""
            room.presence.soon(partial(room.posting.close_question, event.key, decided(event, who)))
        if isinstance(event, TurnSettled):
            room.presence.soon(partial(self._settled, room, thread, message_id, event))
        if pressed := room.intake.presses.taken(message_id, event):
            room.presence.soon(partial(disarm, room.rest, pressed.channel, pressed.message))

    async def _settled(self, room: _Room, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        await room.answers.release(message_id)
        for asked in room.posting.left_open(message_key(thread, message_id)):
            await room.posting.close_question(asked, UNDECIDED)
        # What was handed over and not taken stands there as if it went on; and what a killed process began to show
        # is not in the draft that was stopped now.
        key = message_key(thread, message_id)
        if end.interrupted and since_of(key):
            await anyio.sleep_until(room.opened_at + TIDY_AFTER_S)
        if end.outcome == "undelivered" or (end.interrupted and since_of(key)):
            await self._sweep(room, thread, key)

    async def _sweep(self, room: _Room, thread: ThreadId, key: str) -> None:
        await insist(lambda: room.posting.sweep(thread, key, live=room.presence.live_in(thread)), thread)

    async def earlier(self, thread: ThreadId, before: str) -> Sequence[Spoken]:
        """Return what was said in a thread; a direct message and a chain of replies have nothing before."""
        room = await self._enter()
        spot = await room.places.seen(thread)
        if spot.channel == thread.channel:
            return ()
        said = await room.rest.history(spot.channel, before=before if is_snowflake(before) else "")
        return [line for message in said if (line := spoken(message, room.me))]

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        room = await self._enter()
        own = own_origin(self._options.api_base_url)
        async with open_download(room.files, room.rest, attachment, own) as chunks:
            yield chunks

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        room = await self._enter()
        await room.posting.attach(thread, key, file, name)

    async def _enter(self) -> _Room:
        """Wait until Discord has said who we are; a post may be due before that. Raises `TransportUnavailable`."""
        with anyio.move_on_after(ENTER_WITHIN_S):
            await self._entered.wait()
        if self._room is None:
            raise TransportUnavailable("Discord has not yet said who we are")
        return self._room

    async def _link(
        self,
        rest: Rest,
        files: aiohttp.ClientSession,
        sink: Sink,
        tasks: TaskGroup,
        connected: Callable[[], None],
    ) -> None:
        """Be connected until the link is down; the supervisor runs this again and again."""
        if self._room is None:
            self._room = await self._furnished(rest, files, sink, tasks)
            self._entered.set()
            while self._early:
                self.show(*self._early.popleft())
        await self._room.link.run(connected)

    async def _furnished(
        self, rest: Rest, files: aiohttp.ClientSession, sink: Sink, tasks: TaskGroup
    ) -> _Room:
        options, me, limits = self._options, await rest.login(), dict[str, int]()
        channels, places, answers = Channels(rest), Places(rest, options.in_place), Answers()
        presence = Presence(
            rest,
            places,
            streaming=options.streaming,
            typing=options.typing,
            reactions=options.reactions,
        )
        tasks.start_soon(presence.run)
        posting = Posting(
            rest, places, answers, upload_limit=lambda guild: limits.get(guild, UPLOAD_BYTES), now=self._now
        )
        intake = Intake(
            tasks,
            rest,
            me,
            channels,
            self._marks,
            sink,
            places,
            answers,
            IntakeOptions(options.bots, options.roles, options.max_age_s),
            asks=posting.asks,
            recent=self._recent,
            now=self._now,
        )
        session = partial(
            Session, presence.soon, intake, channels, self._registration, options.models, limits
        )
        heard = self._supervisor.heard
        link = GatewayLink(options.token, options.gateway_url, session, rest.invalid_requests, heard=heard)
        return _Room(rest, me, link, files, places, answers, intake, posting, presence)
