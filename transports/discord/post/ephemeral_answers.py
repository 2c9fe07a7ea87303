"""Answers that one person alone sees: to a slash command and to a press, for as long as Discord takes them.

A slash command shows that the bot is thinking until its first answer is written over that; what else there is to say,
and all that is said to a press, is a message of its own. Discord takes answers for 15 minutes
(docs.discord.com, "Receiving and Responding"), and only from the client that heard the question: after that, and when
the gateway's client was made anew, there is nobody to whisper to, and the answer belongs into the channel.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import anyio
import discord
from cachetools import TTLCache

from threads.errors import PostFailed
from transports.discord.api.api_errors import FROM_OUTSIDE, DiscordRefused, explain
from transports.discord.api.rest import view_of
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
class _Asked:
    """``acknowledged``: Discord was told that it was heard, and takes answers, or it is too late for that."""

    interaction: discord.Interaction
    acknowledged: anyio.Event
    thinking: bool


class Answers:
    """Remembers whom to answer, by the id that their press or command has as a message."""

    def __init__(self) -> None:
        self._asked: TTLCache[str, _Asked] = TTLCache(REMEMBERED, ANSWER_WITHIN_S, anyio.current_time)
        """Each holds the client that heard it, with all that knew."""

    def remember(self, message_id: str, interaction: discord.Interaction, acknowledged: anyio.Event) -> None:
        """Remember an interaction, which can be answered once it is *acknowledged*.

        To a slash command the bot is thinking by that.
        """
        thinking = interaction.type is discord.InteractionType.application_command
        self._asked[message_id] = _Asked(interaction, acknowledged, thinking)

    async def whisper(self, message_id: str, content: str, buttons: Sequence[Button] = ()) -> str:
        """Say it to that person alone and return the message's id.

        Raises `DiscordRefused` when it cannot be said so, and other `PostFailed` when it may work later.
        """
        asked = self._asked.get(message_id)
        if asked is None:
            raise DiscordRefused("whisper", 404, UNKNOWN, "nobody waits for this answer any more")
        await asked.acknowledged.wait()
        if asked.thinking:
            said = await _done(_write(asked.interaction, content, buttons))
            asked.thinking = False
        else:
            said = await _done(_add(asked.interaction, content, buttons))
        return str(said.id)

    async def release(self, message_id: str) -> None:
        """Let a command whose answer went elsewhere, or that has none, think no longer. Never raises."""
        asked = self._asked.pop(message_id, None)
        if asked and asked.thinking:
            await asked.acknowledged.wait()
            try:
                await _done(asked.interaction.delete_original_response())
            except PostFailed as error:
                log.info("slash.left: a command shows that it is thinking, though it is over: %s", error)


async def _write(
    interaction: discord.Interaction, content: str, buttons: Sequence[Button]
) -> discord.Message:
    return await interaction.edit_original_response(content=content, view=view_of(buttons))


async def _add(interaction: discord.Interaction, content: str, buttons: Sequence[Button]) -> discord.Message:
    view = view_of(buttons)  # no buttons are an empty row of them
    return await interaction.followup.send(
        content, view=view, ephemeral=True, suppress_embeds=True, wait=True
    )


async def _done(call: Awaitable[T]) -> T:
    """Wait for a call of the library, which may be cancelled here: it holds nothing but its own line.

    Raises `PostFailed`, a refusal when the client that heard the question is closed.
    """
    try:
        with anyio.fail_after(CALL_WITHIN_S):
            return await call
    except RuntimeError as error:  # aiohttp: Session is closed
        raise DiscordRefused("whisper", 404, UNKNOWN, f"{error}") from None
    except FROM_OUTSIDE as error:
        raise explain("whisper", error, maybe_posted=False) from None
