"""Answers that one person alone sees, to a slash command or to a press of a button.

The first answer to a slash command replaces the "thinking" that Discord shows. Every other answer is a message of its
own. Discord takes answers for 15 minutes (docs.discord.com, "Receiving and Responding"), and only from the client
that received the command. After that, and after a new client has connected, the answer goes to the channel.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import anyio
import discord
from cachetools import TTLCache
from discord.webhook.async_ import AsyncWebhookAdapter, async_context

from threads.errors import PostFailed
from transports.discord.api.api_errors import FROM_OUTSIDE, DiscordRefused, explain
from transports.discord.api.rest import view_of
from transports.discord.api.sdk import interactions_through
from transports.discord.api.values import Button

T = TypeVar("T")

log = logging.getLogger(__name__)

REMEMBERED = 1_000
ANSWER_WITHIN_S = 14 * 60.0
"""Discord takes answers for 15 minutes; one that comes late would be refused on its way."""

CALL_WITHIN_S = 40.0
"""The library tries a 5xx five times, which takes 25 s."""

UNKNOWN = 10_062


@dataclass(slots=True)
class _Interaction:
    """``acknowledged``: Discord knows that we received it and takes answers, or it is too late for that."""

    interaction: discord.Interaction
    acknowledged: anyio.Event
    thinking: bool
    calls: AsyncWebhookAdapter
    """How its client answers: whoever answers later runs in another context."""


class EphemeralAnswers:
    """The interactions that can be answered, by their ids as messages."""

    def __init__(self) -> None:
        self._interactions: TTLCache[str, _Interaction] = TTLCache(
            REMEMBERED, ANSWER_WITHIN_S, anyio.current_time
        )
        """Each holds the client that heard it, with all that knew."""

    def remember(self, message_id: str, interaction: discord.Interaction, acknowledged: anyio.Event) -> None:
        """Remember an interaction, which can be answered once it is *acknowledged*."""
        thinking = interaction.type is discord.InteractionType.application_command
        self._interactions[message_id] = _Interaction(
            interaction, acknowledged, thinking, async_context.get()
        )

    async def whisper(self, message_id: str, content: str, buttons: Sequence[Button] = ()) -> str:
        """Answer that person alone and return the message's id.

        Raises `DiscordRefused` if Discord takes no answer, and another `PostFailed` if it may work later.
        """
        known = self._interactions.get(message_id)
        if known is None:
            raise DiscordRefused("whisper", 404, UNKNOWN, "nobody waits for this answer any more")
        await known.acknowledged.wait()
        answer: Awaitable[discord.Message]
        view = view_of(buttons)
        if known.thinking:
            answer = known.interaction.edit_original_response(content=content, view=view)
        else:
            answer = known.interaction.followup.send(
                content, view=view, ephemeral=True, suppress_embeds=True, wait=True
            )
        sent = await _done(known, answer)
        known.thinking = False
        return str(sent.id)

    async def release(self, message_id: str) -> None:
        """End the "thinking" of a command that is answered elsewhere, or not at all. Never raises."""
        known = self._interactions.pop(message_id, None)
        if known and known.thinking:
            await known.acknowledged.wait()
            try:
                await _done(known, known.interaction.delete_original_response())
            except PostFailed as error:
                log.info("slash.left: a command shows that it is thinking, though it is over: %s", error)


async def _done(known: _Interaction, call: Awaitable[T]) -> T:
    """Wait for a call of the library, which may be cancelled here: it holds nothing but its own line.

    Raises `PostFailed`, a refusal when the client that heard the question is closed.
    """
    try:
        with interactions_through(known.calls), anyio.fail_after(CALL_WITHIN_S):
            return await call
    except RuntimeError as error:  # aiohttp: Session is closed
        raise DiscordRefused("whisper", 404, UNKNOWN, f"{error}") from None
    except FROM_OUTSIDE as error:
        raise explain("whisper", error, maybe_posted=False) from None
