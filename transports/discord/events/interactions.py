"""What a press and a slash command have in common: who it is, and the first word back to Discord.

That word is a promise, so it comes after the disk, which takes milliseconds, but never too late for Discord. A death
before it shows: Discord says that the interaction failed, or was not answered. What is on the disk by then is done by
the next process, and answered in the channel.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256

import anyio
import discord

from threads.model import Author
from transports.discord.api.api_errors import FROM_OUTSIDE
from transports.discord.events.parse_message import author_value

log = logging.getLogger(__name__)

ACKNOWLEDGE_WITHIN_S = 3.0
"""Discord takes an acknowledgement for so long (docs.discord.com, "Receiving and Responding")."""

DURABLE_WITHIN_S = 1.5
"""A disk that takes longer is not waited for: the rest of the 3 s belongs to the call."""

ACKNOWLEDGED = 40060
"""What the library's second try is told when the answer to its first was lost."""

# The last is a closed session: the gateway's client went away meanwhile.
FAILURES = (*FROM_OUTSIDE, RuntimeError)


Take = Callable[[anyio.Event], Awaitable[str]]
"""Makes durable what was asked for and returns what to say at once, ``""`` for nothing.

The event says when the interaction is acknowledged: only then it can be answered.
"""


async def take_in(interaction: discord.Interaction, take: Take, *, thinking: bool) -> None:
    """Acknowledge an interaction when *take* is done, or as late as Discord allows; raises what *take* raises."""
    told, taken, acknowledged = "", anyio.Event(), anyio.Event()
    failure: Exception | None = None

    async def answer() -> None:
        with anyio.move_on_after(DURABLE_WITHIN_S):
            await taken.wait()
        try:
            await acknowledge(interaction, thinking=thinking)
        finally:
            acknowledged.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        try:
            told = await take(acknowledged)
        except Exception as error:  # noqa: BLE001  raised below: it is acknowledged all the same
            failure = error
        taken.set()
    if failure:
        raise failure
    if told:
        await tell(interaction, told)


async def acknowledge(interaction: discord.Interaction, *, thinking: bool) -> bool:
    """Tell Discord that an interaction was heard. False when it came too late.

    What the person asked for is done all the same, only its answer cannot be shown to them alone. *thinking* shows
    them that an answer comes.
    """
    try:
        with anyio.fail_after(ACKNOWLEDGE_WITHIN_S):
            await interaction.response.defer(ephemeral=True, thinking=thinking)
    except FAILURES as failure:
        if isinstance(failure, discord.HTTPException) and failure.code == ACKNOWLEDGED:
            return True
        log.warning("interaction.late: not acknowledged in time: %s", failure or type(failure).__name__)
        return False
    return True


async def tell(interaction: discord.Interaction, text: str) -> None:
    """Say something to the person alone, acknowledged or not; may be dropped."""
    try:
        if interaction.response.is_done():
            await interaction.followup.send(text, ephemeral=True)
        else:
            await interaction.response.send_message(text, ephemeral=True)
    except FAILURES as failure:
        log.warning("interaction.unanswered: %s", failure or type(failure).__name__)


def author_of(interaction: discord.Interaction) -> Author | None:
    """Return the person, with their roles; a payload without a user has a stand-in of the library's."""
    user: object = interaction.user
    return author_value(user) if isinstance(user, discord.User | discord.Member) else None


def digest(*words: str) -> str:
    """Return a short name made of these words, the same each time."""
    return sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()[:20]
