"""Discord as a transport: `intake` takes events in, `posting` posts, and `presence` shows signs of work.

REST and the gateway are two clients: answers get out while the gateway is down, and limits that REST has learned
outlive a reconnect.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import aiohttp
import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed
from threads.model import Attachment, Earlier, Outgoing, Sink, ThreadId, TurnEvent, TurnSettled, message_key
from transports.discord.api.account import TakeGlobal
from transports.discord.api.channel_types import Channels
from transports.discord.api.gateway_link import GatewayLink
from transports.discord.api.options import Options
from transports.discord.api.rest import Rest, open_rest
from transports.discord.api.values import DIRECT, WEB, Me
from transports.discord.events.command_registration import CommandRegistration
from transports.discord.events.downloads import open_download
from transports.discord.events.earlier_lines import EarlierLines
from transports.discord.events.gateway_session import GatewaySession
from transports.discord.events.intake import Intake
from transports.discord.events.interactions import ButtonPress
from transports.discord.events.read_marks import SNOWFLAKES
from transports.discord.events.slash_commands import SlashCommands
from transports.discord.live.presence import Presence
from transports.discord.post.ephemeral_answers import EphemeralAnswers
from transports.discord.post.nonces import nonce_of, since_of
from transports.discord.post.posting import Posting
from transports.discord.post.rewrite import DraftMessage, disarm
from transports.discord.post.thread_opening import Destinations
from transports.shared.backfill.client import MarkedClient
from transports.shared.buttons import Presses
from transports.shared.client import Connection
from transports.shared.link.proxy import own_origin
from transports.shared.live.background_calls import TIDY_AFTER_S, retry_cleanup

log = logging.getLogger(__name__)

UPLOAD_BYTES = 10 * 2**20
"""The most bytes of a file where no guild sets a limit, as in a direct message."""


@dataclass(frozen=True, kw_only=True)
class _Connection(Connection[Rest]):
    me: Me
    link: GatewayLink
    earlier: EarlierLines
    destinations: Destinations
    answers: EphemeralAnswers
    posting: Posting
    presence: Presence

    async def post(self, outgoing: Outgoing, draft: Sequence[DraftMessage]) -> str:
        if outgoing.key == message_key(outgoing.thread, outgoing.reply_to):
            await self.presence.before_post(outgoing.thread, outgoing.reply_to)
        return await self.posting.post(outgoing, draft)

    async def try_out(self, thread: ThreadId, message_id: str) -> None:
        await self.posting.try_out(thread, message_id)

    async def tell(self, person: str, text: str, key: str) -> None:
        await self.api.send(await self.api.direct(person), text, nonce=nonce_of(f"{key}?closed"))

    async def sweep_lost(self, thread: ThreadId, message_id: str) -> None:
        key, live = message_key(thread, message_id), self.presence.live_in(thread)
        try:
            await self.posting.sweep(thread, key, live=live)
        except PostFailed:
            self.presence.soon(partial(self._sweep, thread, key))

    def follow_up(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        if isinstance(event, TurnSettled):
            self.presence.soon(partial(self._settled, thread, message_id, event))

    async def name_of(self, user: str) -> str:
        return f"<@{user}>"

    async def retire(self, press: ButtonPress) -> None:
        await disarm(self.api, press.channel, press.message)

    async def _settled(self, thread: ThreadId, message_id: str, end: TurnSettled) -> None:
        await self.answers.end_thinking(message_id)
        # A draft that did not become an answer looks unfinished, and this process does not know those of a killed
        # one.
        key = message_key(thread, message_id)
        if end.interrupted and since_of(key):
            await anyio.sleep_until(self.opened_at + TIDY_AFTER_S)
        if end.outcome == "undelivered" or (end.interrupted and since_of(key)):
            await self._sweep(thread, key)

    async def _sweep(self, thread: ThreadId, key: str) -> None:
        await retry_cleanup(
            lambda: self.posting.sweep(thread, key, live=self.presence.live_in(thread)), thread
        )


class Discord(MarkedClient[Options, Rest, _Connection]):
    """One bot."""

    kind, scale = "discord", SNOWFLAKES
    capabilities = replace(MarkedClient.capabilities, hides_threads=True)
    take_global: TakeGlobal | None = None
    ensure_ownership: Callable[[], Awaitable[None]] | None = None
    """See `transports.discord.api.account.BotAccount`."""
    _files: aiohttp.ClientSession

    @property
    def trouble(self) -> str:
        return self._connection.api.trouble if self._connection else ""

    def link(self, thread: ThreadId) -> str:
        """Return the address of the thread or, if it is not known to be open, of the message that it began with."""
        destination = self._connection.destinations.known(thread) if self._connection else None
        if thread.workspace == DIRECT or not thread.root:
            where = thread.channel
        elif destination and destination.channel != thread.channel:
            where = destination.channel
        else:
            where = f"{thread.channel}/{thread.root}"
        return f"{WEB}/{thread.workspace}/{where}"

    async def _read_earlier(self, thread: ThreadId, before: str, after: str) -> Earlier:
        return await (await self._connect()).earlier.of(thread, before, after)

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        connection = await self._connect()
        own = own_origin(self._options.api_base_url)
        async with open_download(self._files, connection.api, attachment, own) as chunks:
            yield chunks

    @asynccontextmanager
    async def _open_api(self) -> AsyncIterator[Rest]:
        async with (
            open_rest(self._options.api_base_url, self._options.token) as rest,
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as self._files,
        ):
            rest.take_global, rest.ensure_ownership = self.take_global, self.ensure_ownership
            rest.count_unread = self.count_unread
            yield rest

    async def _run_link(self, connection: _Connection, connected: Callable[[], None]) -> None:
        # Discord allows one session, and several would each get all messages.
        run = partial(connection.link.run, connected)
        await self._hold(f"gateway:{self.name}", run, self._supervisor.stand_by)

    async def _log_in(self, rest: Rest, sink: Sink, tasks: TaskGroup) -> _Connection:
        registration = CommandRegistration(
            self._disk, self._data / f"{self.name}-commands.json", self._offload
        )
        options, me, limits = self._options, await rest.login(), dict[str, int]()
        channels, answers = Channels(rest, self.name), EphemeralAnswers(rest)
        destinations = Destinations(rest, options.in_place)
        presence = Presence(rest, destinations, options)
        tasks.start_soon(presence.run)
        posting = Posting(
            rest, destinations, answers, lambda guild: limits.get(guild, UPLOAD_BYTES), options, self._now
        )
        presses: Presses[ButtonPress] = Presses(posting.questions)
        intake = Intake(
            tasks,
            rest,
            me,
            channels,
            self._marks,
            sink,
            destinations,
            answers,
            self._heard.hear,
            presses,
            self._recent,
            options,
            self._now,
        )
        ask = intake.asked.by_menu if options.ask_shortcut else None
        slash = partial(SlashCommands, options=options, ask=ask)
        session = partial(
            GatewaySession, presence.soon, intake, channels, registration, slash, limits, self.count_unread
        )
        link = GatewayLink(options, session, rest.invalid_requests, self._supervisor.heard)
        return _Connection(
            api=rest,
            me=me,
            link=link,
            earlier=EarlierLines(rest, channels, destinations, me),
            destinations=destinations,
            answers=answers,
            posting=posting,
            presence=presence,
            presses=presses,
        )
