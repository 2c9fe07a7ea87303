"""The conversation that a reply continues, in a channel where the bot answers in place.

A reply to the bot continues the conversation of that answer. From answer to question and from question to the answer
that it replied to, the walk goes back to the first message, the root:

    question of a person        the root
      answer of the bot         replies to the question
        further question        replies to the answer
          its answer            and so on

A message of the bot that is not a reply is a root itself. A person's reply to a person begins a new conversation.
The roots of what this process posted are known, and the walk ends there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial

import anyio
import discord

from threads.errors import PostFailed, TransportRejected
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.api.values import Me, Place
from transports.discord.events.message_text import is_ours, replied_to
from transports.discord.post.thread_opening import Destinations
from transports.shared.retry import retry

log = logging.getLogger(__name__)

MOST_STEPS, LONGEST_WALK_S = 50, 5.0
"""How far back the walk goes, in messages and seconds; then the earliest one found is the root."""

PAUSES_S = (0.5, 1.5)
"""Waits before a message that could not be read is read again: without it, the conversation would begin anew."""


@dataclass(slots=True)
class _Walk:
    """The earliest message found so far, and the bot's own messages on the walk."""

    root: str = ""
    answers: list[str] = field(default_factory=list)


class ReplyChains:
    def __init__(self, rest: Rest, me: Me, destinations: Destinations) -> None:
        self._rest, self._me, self._destinations = rest, me, destinations

    async def ask_for_target(self, message: discord.Message) -> None:
        """Ask once for the message that a reply is about, where Discord does not give it along. Never raises."""
        reference = message.reference
        if message.type != discord.MessageType.reply or reference is None or reference.resolved:
            return
        channel, target = str(reference.channel_id), str(reference.message_id)
        try:
            with anyio.fail_after(LONGEST_WALK_S):
                reference.resolved = await self._rest.message(channel, target)
        except (PostFailed, TimeoutError) as failure:
            if isinstance(failure, DiscordRefused) and failure.kind == "gone":
                reference.resolved = discord.DeletedReferencedMessage(reference)
            log.info("discord.reply_unread: the message that a reply is about cannot be read: %s", failure)

    async def root_of(self, message: discord.Message, place: Place) -> str:
        """Return the id of the first message of the conversation that a message continues, "" if it continues none.

        Never raises: a message that is deleted or unreadable ends the walk.
        """
        walk = _Walk()
        if place.kind == "channel":
            try:
                with anyio.fail_after(LONGEST_WALK_S):
                    await self._walk(message, walk)
            except (PostFailed, TimeoutError) as failure:
                log.info(
                    "discord.chain_unread: the beginning of a chain of replies cannot be read: %s", failure
                )
            else:
                self._destinations.note_answers(walk.root, walk.answers)
        return walk.root

    async def _walk(self, message: discord.Message, walk: _Walk) -> None:
        for _ in range(MOST_STEPS):
            ours, previous = is_ours(message, self._me), _previous(message)
            if ours:
                walk.root = str(message.id)
                walk.answers.append(walk.root)
            if known := self._destinations.root_of(str(message.id)) or self._destinations.root_of(previous):
                walk.root = known
            if known or not previous:
                return
            if ours:  # the bot answered a question, which may be deleted or unreadable now
                walk.root = previous
            before = await self._before(message, previous)
            if before is None or not (ours or is_ours(before, self._me)):
                return
            walk.root, message = str(before.id), before

    async def _before(self, message: discord.Message, previous: str) -> discord.Message | None:
        """Return the message that another replies to; Discord gives one along, but not its own predecessor."""
        if found := replied_to(message):
            return found
        if message.reference and isinstance(message.reference.resolved, discord.DeletedReferencedMessage):
            return None
        try:
            return await retry(partial(self._rest.message, str(message.channel.id), previous), PAUSES_S)
        except TransportRejected:
            return None


def _previous(message: discord.Message) -> str:
    """Return the id of the message of the same channel that this one replies to, "" for none."""
    reference = message.reference
    if message.type != discord.MessageType.reply or reference is None or reference.message_id is None:
        return ""
    return str(reference.message_id) if reference.channel_id == message.channel.id else ""
