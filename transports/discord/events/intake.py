"""Events, live or from a catch-up, on their way to the sink.

The gateway calls its hooks from within its reading, so each event is queued for its channel (`ChannelQueues`):

| event                                | handling                                                                 |
|--------------------------------------|--------------------------------------------------------------------------|
| a message that is not for us         | moves its channel's mark, unless others wait before it                   |
| a message in an unknown channel      | its queue asks Discord for the channel                                   |
| a reply in a channel                 | its queue looks for the conversation that it continues                   |
| a forward                            | its queue waits for words about it (`Forwards`)                          |
| too many wait, or the disk refuses   | missed: the catch-up reads it later                                      |
| a press, a slash command             | made durable, then acknowledged within Discord's 3 s                     |
| a reaction that asks                 | its queue reads the message (`AskedMessages`)                            |
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial

import anyio
import discord
from anyio.abc import TaskGroup
from cachetools import LRUCache

from threads import wording
from threads.errors import PostFailed, StoreUnavailable, TransportRejected
from threads.model import Author, Deleted, Feedback, Incoming, Outcome, Sink, ThreadId, WallClock
from transports.discord.api.channel_types import Channels
from transports.discord.api.options import Options
from transports.discord.api.rest import Rest
from transports.discord.api.snowflake import instant
from transports.discord.api.values import DIRECT, Me, Place
from transports.discord.events.asked_message import AskedMessages
from transports.discord.events.catch_up import ChannelHistory
from transports.discord.events.channel_queue import ChannelQueues
from transports.discord.events.forwards import Forwards, is_forward
from transports.discord.events.interactions import EXPIRED, ButtonPress, parse_press, take_and_acknowledge
from transports.discord.events.message_text import is_ours
from transports.discord.events.parse_message import parse_edit, parse_message
from transports.discord.events.read_marks import last_messages, path
from transports.discord.events.reply_chains import ReplyChains
from transports.discord.post.ephemeral_answers import EphemeralAnswers
from transports.discord.post.rewrite import disarm
from transports.discord.post.thread_opening import Destinations
from transports.shared.backfill.catch_up import CatchUp, Recent
from transports.shared.backfill.marks import Marks
from transports.shared.bot_loop_guard import BotLoopGuard
from transports.shared.buttons import THANKS, Presses

log = logging.getLogger(__name__)

REMEMBERED = 10_000
"""Messages whose conversation is remembered, for edits and deletions."""


MEMBERS_REMEMBERED = 10_000
"""Members whose roles are remembered for one session: afterwards they may have others."""


class Intake:
    def __init__(
        self,
        tasks: TaskGroup,
        rest: Rest,
        me: Me,
        channels: Channels,
        marks: Marks,
        sink: Sink,
        destinations: Destinations,
        answers: EphemeralAnswers,
        hear: Callable[[ThreadId, str], None],
        presses: Presses[ButtonPress],
        recent: Recent,
        options: Options,
        now: WallClock,
    ) -> None:
        """*hear* gets each line of a thread, by its id, also what is not for the bot."""
        self._tasks, self._rest, self._me, self._channels, self._marks = tasks, rest, me, channels, marks
        self._sink, self._destinations, self._answers, self._hear = sink, destinations, answers, hear
        self._presses, self._options, self._now = presses, options, now
        self._queues, self._reply_chains = ChannelQueues(tasks), ReplyChains(rest, me, destinations)
        self._forwards, self._loop_guard = Forwards(rest), BotLoopGuard(options.bots)
        self._history = ChannelHistory(
            rest, marks, self._take_missed, recent=recent, max_age_s=options.max_age_s
        )
        self._catch_up = CatchUp(marks, self._history)
        marks.on_take_over, marks.on_store_back = self._close_gaps, self._catch_up.hurry
        self._threads: LRUCache[str, ThreadId] = LRUCache(REMEMBERED)
        self.asked = AskedMessages(
            rest, me, channels, self._reply_chains, destinations, self._hand_over, options.ask_reaction, now
        )
        self._member_roles: LRUCache[tuple[str, str], tuple[str, ...]] = LRUCache(MEMBERS_REMEMBERED)

    def on_session(self) -> None:
        """Note that a session began: earlier messages may be missed, and no mark passes them from now on."""
        self._member_roles.clear()
        self._history.on_session()
        self._catch_up.missed()

    def on_guild(self, guild: discord.Guild) -> None:
        """Learn the role that Discord made for the bot in a guild: a mention of it is a mention of the bot."""
        if role := guild.self_role:
            self._me = replace(self._me, roles=self._me.roles | {str(role.id)})

    def on_ready(self, client: discord.Client) -> None:
        """Begin to read missed messages, in the guilds of the session."""
        self._history.set_last_messages(last_messages(client.guilds))
        self._close_gaps()

    def on_message(self, message: discord.Message) -> None:
        """Take a message in. Never waits."""
        if message.flags.ephemeral:
            return  # our own answer to one person; without its guild it looks like a direct message
        self._forwards.hear(message)
        place, channel, at = self._channels.see(message.channel), str(message.channel.id), str(message.id)
        guild = place.guild if place else str(getattr(message.channel, "guild_id", None) or DIRECT)
        where = path(guild, channel)
        if place and not self._queues.busy(channel) and self._is_chatter(message, place):
            self._marks.move(where, at)
            if place.kind == "thread":
                self._note_line(message, place)
        elif not self._queues.put(channel, partial(self._take, message, where)):
            log.warning(
                "intake.full: more comes in than can be taken in: what is said in %s waits there", where
            )
            self._marks.missed(where, at)
            self._close_gaps()

    def on_edit(self, event: discord.RawMessageUpdateEvent) -> None:
        if not is_ours(event.message, self._me):
            self._change(str(event.channel_id), partial(self._edit, event))

    def on_delete(self, channel_id: str, message_ids: Collection[str]) -> None:
        self._change(channel_id, partial(self._delete, channel_id, message_ids))

    def on_reaction(self, event: discord.RawReactionActionEvent) -> None:
        work = partial(self.asked.by_reaction, event)
        if self.asked.is_chosen(event) and not self._queues.put(str(event.channel_id), work):
            log.warning("ask.full: a question about a message was not taken: too much waits in its channel")

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        """Take a press; slash commands have their own tree."""
        if interaction.type is not discord.InteractionType.component:
            return
        await take_and_acknowledge(interaction, partial(self._press, interaction), thinking=False)

    async def _press(self, interaction: discord.Interaction, acknowledged: anyio.Event) -> str:
        try:
            press = await self._read_press(interaction)
        except PostFailed as error:
            log.warning("intake.press_unknown: where a button was pressed is not known: %s", error)
            return wording.friendly(error)
        if isinstance(press, Feedback):
            return await self._take_feedback(press)
        if press is None:
            shown = interaction.message
            if shown and not (shown.flags.ephemeral or self._presses.questions.has_seen(str(shown.id))):
                self._tasks.start_soon(disarm, self._rest, str(shown.channel.id), str(shown.id))
            return EXPIRED
        take = partial(self._take_command, acknowledged=acknowledged)
        try:
            if await self._presses.hand_over(press, str(interaction.id), take):
                self._tasks.start_soon(disarm, self._rest, press.channel, press.message)
        except StoreUnavailable as error:
            return wording.friendly(error)
        return ""

    async def _take_feedback(self, feedback: Feedback) -> str:
        """Make a verdict durable, and return the thanks for its person alone."""
        try:
            await self._sink(replace(feedback, author=self._with_known_roles(feedback.author)))
        except StoreUnavailable as error:
            return wording.friendly(error)
        return THANKS[feedback.verdict]

    async def take_command(self, incoming: Incoming, acknowledged: anyio.Event) -> str:
        """Make a slash command durable; its answer goes to the interaction (see `interactions.Take`)."""
        try:
            await self._take_command(incoming, acknowledged)
        except StoreUnavailable as error:
            return wording.friendly(error)
        return ""

    async def _take_command(self, incoming: Incoming, acknowledged: anyio.Event) -> Outcome | None:
        self._answers.remember(incoming.id, incoming.reply_address, acknowledged)
        return await self._hand_over(incoming)

    async def _take(self, message: discord.Message, where: str) -> None:
        try:
            with self._marks.taking(where, str(message.id)):
                # Discord lists no direct messages: after a kill a new one would be lost.
                if where.startswith(DIRECT):
                    await self._marks.note()
                await self._accept(message)
        except (PostFailed, StoreUnavailable) as error:
            log.warning("intake.waits: what was said in %s cannot be taken in now: %s", where, error)
            self._close_gaps()

    def _change(self, channel: str, work: Callable[[], Awaitable[None]]) -> None:
        """Queue an edit or a deletion after its message."""

        async def take() -> None:
            try:
                await work()
            except (PostFailed, StoreUnavailable) as error:
                log.warning("intake.change_lost: an edit or a deletion was not taken in: %s", error)

        if not self._queues.put(channel, take):
            log.warning(
                "intake.change_lost: an edit or a deletion in %s was not taken in: too much waits", channel
            )

    def _is_chatter(self, message: discord.Message, place: Place) -> bool:
        if is_ours(message, self._me):
            return True
        if place.kind == "channel" and message.reference is not None:
            return False
        return self._parse(message, place) is None

    def _parse(
        self, message: discord.Message, place: Place, root: str = "", forward: discord.Message | None = None
    ) -> Incoming | None:
        return parse_message(message, place, self._me, root=root, bots=self._options.bots, forward=forward)

    async def _take_missed(self, message: discord.Message) -> None:
        if is_ours(message, self._me):
            return
        try:
            await self._accept(message, live=False)
        except (PostFailed, StoreUnavailable):
            raise
        except Exception:  # the boundary of a transport: one odd message must not hide those after it
            log.exception("intake.failed: message %d was not taken in", message.id)

    async def _accept(self, message: discord.Message, *, live: bool = True) -> None:
        try:
            place = self._channels.see(message.channel) or await self._channels.of(str(message.channel.id))
        except TransportRejected as refused:
            log.info("intake.unseen: a message in a channel that cannot be looked at: %s", refused)
            return
        root = await self._root_of(message, place)
        if not (incoming := self._parse(message, place, root)):
            self._note_line(message, place, root, live=live)
            return
        old = not live and (self._now() - instant(incoming.id)).total_seconds() > self._options.max_age_s
        if is_forward(message) and not old:
            if await self._forwards.is_followed(message, live=live):
                return
        elif forward := await self._forwards.before(message, place, live=live or old):
            incoming = self._parse(message, place, root, forward) or incoming
        self._note_line(message, place, root, live=live)
        if not live:
            incoming = replace(incoming, author=await self._with_roles(incoming.author, place), stale=old)
        if place.kind == "thread":
            self._destinations.note_thread(incoming.thread)
        elif incoming.thread.root == incoming.id:
            self._destinations.note_question(incoming.thread, incoming.text)
        await self._hand_over(incoming)

    def _note_line(
        self, message: discord.Message, place: Place, root: str = "", *, live: bool = True
    ) -> None:
        if live and not is_ours(message, self._me):
            self._hear(place.thread(root or str(message.id)), str(message.id))

    async def _root_of(self, message: discord.Message, place: Place) -> str:
        await self._reply_chains.ask_for_target(message)
        return await self._reply_chains.root_of(message, place)

    async def _hand_over(self, incoming: Incoming) -> Outcome | None:
        if not self._loop_guard.admits(incoming):
            return None
        self._threads[incoming.id] = incoming.thread
        return await self._sink(replace(incoming, author=self._with_known_roles(incoming.author)))

    def _with_known_roles(self, author: Author) -> Author:
        """Return a person with only the roles that grant rights."""
        granting = self._options.roles()
        return replace(author, roles=tuple(role for role in author.roles if role in granting))

    async def _with_roles(self, author: Author, place: Place) -> Author:
        """Return a person of the history, whose messages have no roles, with their roles. Raises `PostFailed`."""
        if not self._options.roles() or place.kind == "direct":
            return author
        member = place.guild, author.id
        if (roles := self._member_roles.get(member)) is None:
            try:
                roles = await self._rest.roles_of(*member)
            except TransportRejected:  # not a member any more
                roles = ()
            self._member_roles[member] = roles
        return replace(author, roles=roles)

    async def _edit(self, event: discord.RawMessageUpdateEvent) -> None:
        place = await self._channels.of(str(event.channel_id))
        known = self._threads.get(str(event.message_id))
        root = await self._root_of(event.message, place)
        root = known.root if known else root
        forward = await self._forwards.before(event.message, place, live=True)
        for inbound in parse_edit(
            event, place, self._me, root=root, bots=self._options.bots, forward=forward
        ):
            if isinstance(inbound, Incoming):
                await self._hand_over(inbound)
            else:
                await self._sink(inbound)

    async def _delete(self, channel_id: str, message_ids: Collection[str]) -> None:
        place = await self._channels.of(channel_id)
        for id_ in message_ids:
            await self._sink(Deleted(id_, self._threads.get(id_) or place.thread(id_)))

    async def _read_press(self, interaction: discord.Interaction) -> ButtonPress | Feedback | None:
        place = self._channels.see(interaction.channel) or await self._channels.of(
            str(interaction.channel_id)
        )
        message = interaction.message
        root = await self._reply_chains.root_of(message, place) if message else ""
        return parse_press(interaction, place, root=root)

    def _close_gaps(self) -> None:
        self._tasks.start_soon(partial(self._catch_up.run, gap=False))
