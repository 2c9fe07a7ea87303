"""What comes in, live or from a catch-up, on its way to the sink.

discord.py calls back for each event in a task of its own, so what is done before the first wait is all that keeps the
order: there the event is put into its channel's lane (`lanes.Lanes`).

| event                                | what becomes of it                                                       |
|--------------------------------------|--------------------------------------------------------------------------|
| a message that is not for us         | its channel's mark moves, and that is all, unless others wait before it  |
| a message in a channel nobody knows  | its lane asks Discord what the channel is                                |
| a reply in a channel                 | its lane looks which conversation it continues                           |
| too many wait                        | it was missed: the catch-up reads it when there is room                  |
| the disk refuses                     | the same                                                                 |
| a press, a slash command             | acknowledged first: Discord waits 3 s; then made durable                 |
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import discord
from anyio.abc import TaskGroup

from threads import wording
from threads.errors import PostFailed, StoreUnavailable, TransportRejected
from threads.model import Author, Deleted, Incoming, Sink, ThreadId
from transports.bots import BotCap
from transports.catch_up import CatchUp, Recent
from transports.discord.hear.catch_up import History
from transports.discord.hear.chains import Chains
from transports.discord.hear.interactions import acknowledge, tell
from transports.discord.hear.lanes import Lanes
from transports.discord.hear.marks import last_said, path
from transports.discord.hear.message import parse_edit, parse_message
from transports.discord.hear.press import EXPIRED, Pressed, parse_press
from transports.discord.post.answers import Answers
from transports.discord.post.places import Places
from transports.discord.wire.channels import Channels
from transports.discord.wire.rest import Rest
from transports.discord.wire.shapes import DIRECT, Me, Place
from transports.discord.wire.snowflake import instant
from transports.marks import Marks
from transports.presses import Presses

log = logging.getLogger(__name__)

REMEMBERED = 10_000
"""Messages whose conversation is known, for when they are edited or deleted."""


@dataclass(frozen=True, slots=True)
class Hearing:
    """Who is heard, and how. ``roles`` are those that rights hang on: of others nothing is kept."""

    bots: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    max_age_s: float = 600


class Intake:
    def __init__(
        self,
        tasks: TaskGroup,
        rest: Rest,
        me: Me,
        channels: Channels,
        marks: Marks,
        sink: Sink,
        places: Places,
        answers: Answers,
        hearing: Hearing,
        *,
        recent: Recent,
        now: Callable[[], datetime],
    ) -> None:
        self.presses: Presses[Pressed] = Presses()
        self._tasks, self._rest, self._me, self._channels, self._marks = tasks, rest, me, channels, marks
        self._sink, self._places, self._answers = sink, places, answers
        self._hearing, self._now = hearing, now
        self._lanes, self._chains, self._cap = Lanes(tasks), Chains(rest, me), BotCap(hearing.bots)
        self._history = History(rest, marks, self._missed, recent=recent, max_age_s=hearing.max_age_s)
        self._catch_up = CatchUp(marks, self._history)
        self._threads: OrderedDict[str, ThreadId] = OrderedDict()
        self._roles: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    def began(self) -> None:
        """Note that a session began, and what was said before it may be missed: no mark passes that from now on."""
        self._history.began()
        self._catch_up.missed()

    def joined(self, guild: discord.Guild) -> None:
        """Learn the role that Discord made for the bot there: who mentions that means the bot."""
        if role := guild.self_role:
            self._me = replace(self._me, roles=self._me.roles | {str(role.id)})

    def ready(self, client: discord.Client) -> None:
        """Begin to look for what was missed, in the guilds that the session told of."""
        self._history.told(last_said(client.guilds))
        self._close_gaps()

    def message(self, message: discord.Message) -> None:
        """Take a message in. Never waits."""
        if message.flags.ephemeral:
            return  # our own answer to one person, of which Discord tells without its guild: no direct message
        place, channel, at = self._channels.see(message.channel), str(message.channel.id), str(message.id)
        where = path(str(message.guild.id) if message.guild else DIRECT, channel)
        if place and not self._lanes.busy(channel) and self._is_chatter(message, place):
            self._marks.move(where, at)
        elif not self._lanes.put(channel, partial(self._take, message, where)):
            log.warning("discord: more comes in than can be taken in: what is said in %s waits there", where)
            self._marks.missed(where, at)
            self._close_gaps()

    def edited(self, event: discord.RawMessageUpdateEvent) -> None:
        if str(event.message.author.id) != self._me.id:
            self._lanes.put(str(event.channel_id), partial(self._change, partial(self._edit, event)))

    def deleted(self, channel_id: str, message_ids: Collection[str]) -> None:
        self._lanes.put(channel_id, partial(self._change, partial(self._delete, channel_id, message_ids)))

    async def interaction(self, interaction: discord.Interaction) -> None:
        """Take a press in; a slash command is taken by its own tree."""
        if interaction.type is not discord.InteractionType.component:
            return
        await acknowledge(interaction, thinking=False)
        try:
            pressed = await self._pressed(interaction)
        except PostFailed as error:
            log.warning("discord: where a button was pressed is not known: %s", error)
            pressed = None
        if pressed is None:
            await tell(interaction, EXPIRED)
        else:
            self.presses.pressed(pressed)
            await self.command(pressed.incoming, interaction)

    async def command(self, incoming: Incoming, interaction: discord.Interaction) -> None:
        """Make a press or a slash command durable, which was acknowledged; its answer goes to the *interaction*."""
        self._answers.remember(incoming.id, interaction)
        try:
            await self._hand_over(incoming)
        except StoreUnavailable as error:
            await tell(interaction, wording.friendly(error))

    async def _take(self, message: discord.Message, where: str) -> None:
        try:
            with self._marks.taking(where, str(message.id)):
                if self._marks.unwritten and where.startswith(DIRECT):
                    await (
                        self._marks.save()
                    )  # Discord lists no direct messages: after a kill nobody knew of it
                await self._hear(message)
        except (PostFailed, StoreUnavailable) as error:
            log.warning("discord: what was said in %s cannot be taken in now: %s", where, error)
            self._close_gaps()

    async def _change(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (PostFailed, StoreUnavailable) as error:
            log.warning("discord: an edit or a deletion was not taken in: %s", error)

    def _is_chatter(self, message: discord.Message, place: Place) -> bool:
        if str(message.author.id) == self._me.id:
            return True
        if place.kind == "channel" and message.reference is not None:
            return False
        return self._parsed(message, place) is None

    def _parsed(self, message: discord.Message, place: Place, root: str = "") -> Incoming | None:
        return parse_message(message, place, self._me, root=root, bots=self._hearing.bots)

    async def _missed(self, message: discord.Message) -> None:
        if str(message.author.id) != self._me.id:
            await self._hear(message, live=False)

    async def _hear(self, message: discord.Message, *, live: bool = True) -> None:
        try:
            place = self._channels.see(message.channel) or await self._channels.of(str(message.channel.id))
        except TransportRejected as refused:
            log.info("discord: a message in a channel that cannot be looked at: %s", refused)
            return
        root = await self._chains.root_of(message, place) if message.reference else ""
        if not (incoming := self._parsed(message, place, root)):
            return
        if not live:
            old = (self._now() - instant(incoming.id)).total_seconds() > self._hearing.max_age_s
            incoming = replace(incoming, author=await self._with_roles(incoming.author, place), stale=old)
        if place.kind == "thread":
            self._places.stands(incoming.thread)
        elif incoming.thread.root == incoming.id:
            self._places.begins(incoming.thread, incoming.text)
        await self._hand_over(incoming)

    async def _hand_over(self, incoming: Incoming) -> None:
        if not self._cap.admits(incoming):
            return
        author = incoming.author
        kept = tuple(role for role in author.roles if role in self._hearing.roles)
        self._threads[incoming.id] = incoming.thread
        if len(self._threads) > REMEMBERED:
            self._threads.popitem(last=False)
        await self._sink(replace(incoming, author=replace(author, roles=kept)))

    async def _edit(self, event: discord.RawMessageUpdateEvent) -> None:
        place = await self._channels.of(str(event.channel_id))
        known = self._threads.get(str(event.message_id))
        root = known.root if known else await self._chains.root_of(event.message, place)
        for inbound in parse_edit(event, place, self._me, root=root, bots=self._hearing.bots):
            if isinstance(inbound, Incoming):
                await self._hand_over(inbound)
            else:
                await self._sink(inbound)

    async def _delete(self, channel_id: str, message_ids: Collection[str]) -> None:
        place = await self._channels.of(channel_id)
        for id_ in message_ids:
            await self._sink(Deleted(id_, self._threads.get(id_) or place.thread(id_)))

    async def _pressed(self, interaction: discord.Interaction) -> Pressed | None:
        place = self._channels.see(interaction.channel) or await self._channels.of(
            str(interaction.channel_id)
        )
        message = interaction.message
        root = await self._chains.root_of(message, place) if message else ""
        return parse_press(interaction, place, root=root)

    async def _with_roles(self, author: Author, place: Place) -> Author:
        """Return the person with their roles, which Discord does not tell in its history."""
        if not self._hearing.roles or place.kind == "direct":
            return author
        who = place.guild, author.id
        if who not in self._roles:
            try:
                self._roles[who] = await self._rest.roles_of(*who)
            except TransportRejected:  # who is no member any more
                self._roles[who] = ()
            if len(self._roles) > REMEMBERED:
                self._roles.popitem(last=False)
        return replace(author, roles=self._roles[who])

    def _close_gaps(self) -> None:
        self._tasks.start_soon(partial(self._catch_up.run, gap=False))
