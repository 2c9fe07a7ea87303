"""Slack as a transport: what comes in goes through `intake`, posts through `posting`, signs of life by `presence`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, StoreUnavailable
from threads.model import (
    Attachment,
    Earlier,
    Outgoing,
    Sink,
    Taken,
    ThreadId,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    message_key,
)
from transports.shared.backfill.client import MarkedClient
from transports.shared.client import Connection
from transports.shared.delivery.closed_places import DOTS
from transports.shared.link.proxy import own_origin
from transports.shared.live.background_calls import TIDY_AFTER_S, retry_cleanup
from transports.slack.api import thread_history
from transports.slack.api.json_fields import instant, is_stamp, stamp
from transports.slack.api.rate_limits import RateLimits
from transports.slack.api.socket_mode import SocketModeLink
from transports.slack.api.web_api import WebApi, open_web
from transports.slack.events.catch_up import OUTCOMES_FIRST_S
from transports.slack.events.downloads import located, open_download
from transports.slack.events.intake import Intake
from transports.slack.events.lookups import Lookups
from transports.slack.events.parse_action import ButtonPress
from transports.slack.events.parse_message import Me, spoken
from transports.slack.events.pressed_buttons import PressedButtons
from transports.slack.events.timestamps import STAMPS
from transports.slack.live.presence import Presence
from transports.slack.manifest import Features, missing_scopes
from transports.slack.post.post_tags import since_of
from transports.slack.post.posting import Posting
from transports.slack.post.rewrite import DraftMessage, remove

log = logging.getLogger(__name__)

BUSY_WITHIN_S = 3600.0
MOST_CLEARED = 50
"""Threads that may still show that a killed process was at work: Slack itself forgets after an hour."""

CLOSED_EVERY_S = 1.0
"""How often a thread that is to be swept is checked for drafts that are being closed."""

MOST_NAMED, NAMED_WITHIN_S = 50, 2.0
"""Earlier lines whose names are looked up, the newest first, and how long an answer waits for them."""

KNOWN_S = 1.0
"""Seconds after which other workers know of a new one. Until then it hears nothing, for they think they hear all."""

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
    stream_in_channels: bool = True
    bots: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    max_age_s: float = 600


@dataclass(slots=True)
class _Leftovers:
    """Unfinished messages that a thread may hold since a ts, of killed processes or, ``again``, of this one.

    ``turn_began``: a turn has begun there since the sweep began.
    """

    since: str
    again: bool = False
    sweeping: bool = False
    turn_began: bool = False


@dataclass(frozen=True, kw_only=True)
class _Connection(Connection[WebApi]):
    """``sweeping`` is held while a thread is swept: many sweeps at once would delay the catch-up."""

    me: Me
    intake: Intake
    posting: Posting
    presence: Presence
    presses: PressedButtons
    lookups: Lookups
    url: str
    reads_files: bool
    leftovers: dict[ThreadId, _Leftovers] = field(default_factory=dict)
    sweeping: anyio.Lock = field(default_factory=anyio.Lock)

    async def post(self, outgoing: Outgoing, draft: Sequence[DraftMessage]) -> str:
        thread, message_id = outgoing.thread, outgoing.reply_to
        if outgoing.key == message_key(thread, message_id):
            self.presence.answering(thread, message_id)
        links = self.presence.links_for(thread, message_id, live=True)
        return await self.posting.post(outgoing, links, draft)

    async def try_out(self, thread: ThreadId, message_id: str) -> None:  # noqa: ARG002 - all are in the thread
        answer = await self.api.call(
            "chat.postMessage", channel=thread.channel, thread_ts=thread.root or None, text=DOTS
        )
        await remove(self.api, thread.channel, stamp(answer, "ts"))

    async def tell(self, person: str, text: str, key: str) -> None:  # noqa: ARG002 - Slack takes no key
        await self.api.call("chat.postMessage", channel=person, text=text, unfurl_links=False)

    async def sweep_lost(self, thread: ThreadId, message_id: str) -> None:
        if thread.root and (since := since_of(message_key(thread, message_id))):
            try:
                await self.posting.sweep(thread, since)
            except PostFailed:
                self._note_leftovers(thread, message_id, again=True)

    def follow_up(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        if isinstance(event, TurnSettled):
            self._settled(thread, message_id, event)
        elif isinstance(event, Taken | TurnStarted) and thread in self.leftovers:
            self.leftovers[thread].turn_began = True

    async def name_of(self, user: str) -> str:
        return await self.lookups.name_of(user)

    async def retire(self, press: ButtonPress) -> None:
        await self.presses.retire(press)

    def _note_leftovers(self, thread: ThreadId, message_id: str, *, again: bool) -> None:
        """Note that a thread may hold an unfinished message, which would look like a second answer."""
        if (since := since_of(message_key(thread, message_id))) and thread.root:
            leftovers = self.leftovers.setdefault(thread, _Leftovers(since))
            leftovers.since, leftovers.again = (
                min(leftovers.since, since, key=instant),
                leftovers.again or again,
            )

    def _settled(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        if end.interrupted or end.outcome == "undelivered":  # its draft was handed over and not taken
            self._note_leftovers(thread, message_id, again=not end.again)
        if (leftovers := self.leftovers.get(thread)) and not leftovers.sweeping:
            leftovers.sweeping = self.presence.soon(partial(self._sweep_leftovers, thread, leftovers))

    async def _sweep_leftovers(self, thread: ThreadId, leftovers: _Leftovers) -> None:
        """Delete the unfinished messages of a thread, as soon as no turn runs there."""
        if not leftovers.again:
            await anyio.sleep_until(self.opened_at + TIDY_AFTER_S)
        while self.presence.closing_in(thread):  # noqa: ASYNC110 - many may wait for many
            await anyio.sleep(CLOSED_EVERY_S)

        async def sweep() -> None:
            while self.presence.quiet_in(thread):
                async with self.sweeping:
                    leftovers.turn_began = not self.presence.quiet_in(thread)
                    if not leftovers.turn_began and await self.posting.sweep(
                        thread,
                        leftovers.since,
                        again=leftovers.again,
                        undisturbed=lambda: not leftovers.turn_began,
                    ):
                        self.leftovers.pop(thread, None)
                        return

        try:
            await retry_cleanup(sweep, thread)
        finally:
            leftovers.sweeping = False


class Slack(MarkedClient[Options, WebApi, _Connection]):
    """One app in one workspace."""

    kind, scale = "slack", STAMPS
    limits: RateLimits | None = None
    """Those of all workers together, where there are several."""
    others_seen: Callable[[], int] = staticmethod(lambda: 0)
    """See `threads.ports.Store.others_seen`. While there are others, each worker hears a part."""
    _seen = 0

    def link(self, thread: ThreadId) -> str:
        """Return the thread's permalink, in the form that ``chat.getPermalink`` gives, or its channel's."""
        url = self._connection.url if self._connection else ""
        if not url:
            return f"{REDIRECT}?team={thread.workspace}&channel={thread.channel}"
        message = f"/p{thread.root.replace('.', '')}" if is_stamp(thread.root) else ""
        return f"{url}archives/{thread.channel}{message}"

    @property
    def _hears_all(self) -> bool:
        if self._seen != (seen := self.others_seen()):
            self._seen = seen
            self._heard.clear()
        return super()._hears_all and self._workers() == 1

    async def _read_earlier(self, thread: ThreadId, before: str, after: str) -> Earlier:
        connection = await self._connect()
        if before == thread.root or not is_stamp(thread.root):
            return Earlier()
        before, after = (ts if is_stamp(ts) else "" for ts in (before, after))
        section = await thread_history.newest(connection.api, thread.channel, thread.root, after, before)
        messages = [*section.root, *section.replies]
        await connection.lookups.explain(
            [*section.root, *reversed(section.replies[-MOST_NAMED:])], NAMED_WITHIN_S
        )
        lines = (spoken(message, connection.me, connection.lookups.known) for message in messages)
        return Earlier(tuple(line for line in lines if line), section.left_out)

    async def search_platform(self, thread: ThreadId, message_id: str, words: str) -> Sequence[str]:
        """Search as Slack does, for the author of a message. Raises `PostFailed`."""
        return await (await self._connect()).intake.search.search(thread.channel, message_id, words)

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        connection, options = await self._connect(), self._options
        own = own_origin(options.api_base_url)
        attachment = await located(attachment, connection.lookups)
        async with open_download(
            connection.api.session,
            attachment,
            token=options.bot_token,
            own=own,
            granted=connection.reads_files,
        ) as chunks:
            yield chunks

    def _open_api(self) -> AbstractAsyncContextManager[WebApi]:
        return open_web(self._options.api_base_url, self._options.bot_token, self.limits)

    async def _run_link(self, connection: _Connection, connected: Callable[[], None]) -> None:
        def up() -> None:
            self._reachability.found()
            connected()
            connection.intake.missed()

        link = SocketModeLink(
            app_token=self._options.app_token,
            client=connection.api.client,
            take=connection.intake.take,
            heard=self._supervisor.heard,
            workers=self._workers,
        )
        if self._workers() > 1:
            await anyio.sleep_until(connection.opened_at + KNOWN_S)
        await link.run(up)

    def _workers(self) -> int:
        return self.limits.workers() if self.limits else 1

    async def _log_in(self, web: WebApi, sink: Sink, tasks: TaskGroup) -> _Connection:
        options, identity = self._options, await web.identity()
        for clause in missing_scopes(identity.scopes, options.features):
            log.warning("slack.scope_missing: %s; `threadfast manifest slack` has all of them", clause)
        me = Me(identity.team, identity.user, identity.bot_id, identity.name, options.bots, self.name)
        presence = Presence(
            web,
            team=me.team,
            allowed=options.links,
            prompts=options.prompts,
            stream_in_channels=options.stream_in_channels,
        )
        tasks.start_soon(presence.run)
        has_pending = any(isinstance(event, Taken) and event.again for *_, event in self._early)
        posting = Posting(web, identity, feedback=options.feedback)
        lookups = Lookups(web, me, lambda kind: self.count_unread(kind))  # noqa: PLW0108 - it may be set later
        buttons = PressedButtons(web, lookups, posting.questions)
        intake = Intake(
            tasks,
            web,
            me,
            self._marks,
            sink,
            presence,
            lookups,
            buttons,
            self._heard.hear,
            recent=self._recent,
            now=self._now,
            max_age_s=options.max_age_s,
            features=options.features,
            url=identity.url,
            read_from=anyio.current_time() + OUTCOMES_FIRST_S * has_pending,
        )
        with suppress(StoreUnavailable):  # a sign that stays is no reason not to serve
            presence.soon(partial(presence.clear, await self._recent(BUSY_WITHIN_S, MOST_CLEARED)))
        return _Connection(
            api=web,
            me=me,
            intake=intake,
            posting=posting,
            presence=presence,
            presses=buttons,
            lookups=lookups,
            url=identity.url,
            reads_files=not identity.scopes or "files:read" in identity.scopes,
        )
