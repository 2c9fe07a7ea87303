"""A message that somebody asks the bot about, from the menu of the message or by a reaction.

The turn is that person's, in the thread of the message. What the message says is quoted, so it is text from outside,
whoever wrote it. Each person asks about a message once: a second choice has the same id, which is not that of the
message. One that came to nothing can be asked about again from the menu.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

import anyio
import discord

from threads import wording
from threads.errors import PostFailed, StoreUnavailable
from threads.model import Author, Incoming, Outcome, Via, WallClock
from transports.base.text import digest
from transports.discord.api.channel_types import Channels
from transports.discord.api.rest import Rest
from transports.discord.api.values import WEB, Me, Place, ReplyAddress
from transports.discord.events.interactions import author_of
from transports.discord.events.message_text import NO_WORDS, content_of
from transports.discord.events.parse_message import author_value, parse_spoken, sent_at
from transports.discord.events.reply_chains import ReplyChains
from transports.discord.post.thread_opening import Destinations
from transports.shared.buttons import CARRIED_OUT
from transports.shared.retry import retry

log = logging.getLogger(__name__)

WORDS = "Please help with the message that is quoted above."
"""What somebody says who only chooses a message."""

PAUSES_S = (1.0, 5.0, 30.0)
"""Waits before what somebody reacted to is read again; nobody sends the event a second time."""

NOT_A_MEMBER = "I may not read and write here. Ask an admin to let me in, or forward the message to me."
TAKEN = "I have your question. What comes of it stands in the thread of the message: <{link}>"
ANSWERED = "You have asked me about this message before. My answer is in its thread: <{link}>"

HandOver = Callable[[Incoming], Awaitable[Outcome | None]]


@dataclass(frozen=True, slots=True)
class AskedMessages:
    """``reaction`` is the emoji that asks, "" for none: itself, or the name or the id of a server's own."""

    rest: Rest
    me: Me
    channels: Channels
    reply_chains: ReplyChains
    destinations: Destinations
    hand_over: HandOver
    reaction: str
    now: WallClock

    async def by_menu(
        self, interaction: discord.Interaction, message: discord.Message, _: anyio.Event
    ) -> str:
        """Take a choice in the menu of a message; return what to tell its person alone (see `interactions.Take`)."""
        may, author = interaction.app_permissions, author_of(interaction)
        if author is None or not (may.view_channel and (may.send_messages or may.send_messages_in_threads)):
            return NOT_A_MEMBER
        try:
            place = self.channels.see(interaction.channel) or await self.channels.of(str(message.channel.id))
            incoming = await self._question(message, place, author, sent_at(str(interaction.id)))
            # Nothing thinks: the answer is for all. Only a refusal goes to the person alone.
            address = ReplyAddress(str(interaction.application_id), interaction.token, thinking=False)
            incoming = replace(incoming, reply_address=str(address))
            outcome = await self.hand_over(incoming)
            if outcome and outcome not in CARRIED_OUT:
                again = f"{incoming.id}-{digest(str(interaction.id))}"
                outcome = await self.hand_over(replace(incoming, id=again))
        except (PostFailed, StoreUnavailable) as error:
            log.warning("ask.untaken: a question about a message was not taken: %s", error)
            return wording.friendly(error)
        return (ANSWERED if outcome else TAKEN).format(link=_link(message, place))

    def is_chosen(self, event: discord.RawReactionActionEvent) -> bool:
        """Return whether this is a person's reaction that asks."""
        emoji, member = event.emoji, event.member
        by_bot = str(event.user_id) == self.me.id or (member is not None and member.bot)
        chosen = _plain(self.reaction) in (_plain(emoji.name), str(emoji.id))
        return self.reaction != "" and chosen and not by_bot

    async def by_reaction(self, event: discord.RawReactionActionEvent) -> None:
        """Take a reaction. Never raises: what cannot be read or stored in a few tries is logged."""
        channel, message_id = str(event.channel_id), str(event.message_id)
        author = author_value(event.member) if event.member else Author(str(event.user_id))
        try:
            place = await retry(partial(self.channels.of, channel), PAUSES_S)
            message = await retry(partial(self.rest.message, channel, message_id), PAUSES_S)
            at = self.now().isoformat(timespec="milliseconds")
            await self.hand_over(await self._question(message, place, author, at))
        except (PostFailed, StoreUnavailable) as error:
            log.warning("ask.untaken: a question about a message was not taken: %s", error)

    async def _question(self, message: discord.Message, place: Place, author: Author, at: str) -> Incoming:
        """Return what a person says by asking: a few words of ours, and the message as a quotation."""
        id_, line = str(message.id), parse_spoken(message, self.me)
        thread = place.thread(await self.reply_chains.root_of(message, place) or id_)
        if place.kind == "thread":
            self.destinations.note_thread(thread)
        elif thread.root == id_:
            self.destinations.note_question(thread, content_of(message))
        who = f" from {line.author.name or line.author.id}" if line else ""
        said = line.text if line else NO_WORDS
        rows = (f"Message{who}: {_link(message, place)}", *said.splitlines())
        asks = Incoming(f"ask-{digest(place.id, id_, author.id)}", thread, author, WORDS, at)
        via: Via = "direct" if place.kind == "direct" else "mention"
        files = tuple(replace(file, voice=False) for file in line.files) if line else ()
        return replace(asks, via=via, files=files, quoted="\n".join(f"> {row}" for row in rows))


def _link(message: discord.Message, place: Place) -> str:
    return f"{WEB}/{place.guild}/{place.id}/{message.id}"


def _plain(emoji: str | None) -> str:
    """Return an emoji without the sign that asks for a coloured picture; people type it or not."""
    return (emoji or "").strip().strip(":").replace("\ufe0f", "")
