"""Presses of buttons as messages, and what they share with slash commands: the person, and the acknowledgement.

A press is the command of its button. The ``custom_id`` holds all, so buttons outlive a restart. A second press by the
same person has the same id (`transports.shared.buttons.Presses`).

The acknowledgement is a promise, so it follows the write to disk, which takes milliseconds, but it is never too late
for Discord. After a crash before it, Discord says that the interaction failed. If it was on disk by then, the next
process does it. It cannot tell its person alone then, and answers in the channel.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import discord

from threads.model import Author, Feedback, Incoming
from transports.base.text import digest
from transports.discord.api.api_errors import FROM_OUTSIDE
from transports.discord.api.values import Place, ReplyAddress
from transports.discord.events.parse_message import author_value, sent_at
from transports.discord.markdown.buttons import FEEDBACK, command_of

log = logging.getLogger(__name__)

ACKNOWLEDGE_WITHIN_S = 3.0
"""Discord's deadline (docs.discord.com, "Receiving and Responding")."""

DURABLE_WITHIN_S = 1.5
"""The rest of the 3 s is for the call."""

ACKNOWLEDGED = 40060
"""The code of a second acknowledgement: the answer to the first was lost."""

EXPIRED = "This button does not work any more. Say what you would like to do instead."
"""The answer to a press of an unknown button; without one Discord says "This interaction failed"."""

FAILURES = (*FROM_OUTSIDE, RuntimeError)
"""A RuntimeError is a closed session: the gateway's client is gone."""

Take = Callable[[anyio.Event], Awaitable[str]]
"""Makes the request durable and returns what to say at once, or "".

The event is set when the interaction is acknowledged: only then can it be answered.
"""


async def take_and_acknowledge(interaction: discord.Interaction, take: Take, *, thinking: bool) -> None:
    """Acknowledge an interaction when *take* is done, or as late as Discord allows; raises what *take* raises."""
    reply, taken, acknowledged = "", anyio.Event(), anyio.Event()
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
            reply = await take(acknowledged)
        except Exception as error:  # noqa: BLE001  raised below: it is acknowledged all the same
            failure = error
        taken.set()
    if failure:
        raise failure
    if reply:
        await answer_privately(interaction, reply)


async def acknowledge(interaction: discord.Interaction, *, thinking: bool) -> None:
    """Acknowledge an interaction; *thinking* shows that an answer follows.

    If that is too late, the command is still done, but its answer cannot be shown to its person alone.
    """
    try:
        with anyio.fail_after(ACKNOWLEDGE_WITHIN_S):
            await interaction.response.defer(ephemeral=True, thinking=thinking)
    except FAILURES as failure:
        if not (isinstance(failure, discord.HTTPException) and failure.code == ACKNOWLEDGED):
            log.warning("interaction.late: not acknowledged in time: %s", failure or type(failure).__name__)


async def answer_privately(interaction: discord.Interaction, text: str) -> None:
    """Say something to the person alone, acknowledged or not; may be dropped."""
    try:
        if interaction.response.is_done():
            await interaction.followup.send(text, ephemeral=True)
        else:
            await interaction.response.send_message(text, ephemeral=True)
    except FAILURES as failure:
        log.warning("interaction.unanswered: %s", failure or type(failure).__name__)


def reply_address(interaction: discord.Interaction) -> str:
    """Return where the interaction can be answered for its person alone, by any process."""
    thinking = interaction.type is discord.InteractionType.application_command
    return str(ReplyAddress(str(interaction.application_id), interaction.token, thinking))


def author_of(interaction: discord.Interaction) -> Author | None:
    """Return the person, with their roles; a payload without a user has a stand-in of the library's."""
    user: object = interaction.user
    return author_value(user) if isinstance(user, discord.User | discord.Member) else None


@dataclass(frozen=True, slots=True)
class ButtonPress:
    """A choice that a person made: ``channel`` and ``message`` are where the button is.

    An ``ephemeral`` message is one that only this person sees.
    """

    incoming: Incoming
    channel: str
    message: str
    ephemeral: bool = False

    @property
    def place(self) -> str:
        return self.message


def parse_press(
    interaction: discord.Interaction, place: Place, *, root: str = ""
) -> ButtonPress | Feedback | None:
    """Read a press; None for an unknown button (`EXPIRED` is the answer). Never raises.

    *root* is the first message of the conversation that the message with the button belongs to, where the bot
    answers in place (`ReplyChains`).
    """
    message, author, data = interaction.message, author_of(interaction), interaction.data
    custom_id = data.get("custom_id") if isinstance(data, dict) else None
    custom_id = custom_id if isinstance(custom_id, str) else ""
    if message is None or author is None:
        return None
    id_, ephemeral = str(message.id), message.flags.ephemeral
    if verdict := FEEDBACK.get(custom_id):
        name = f"feedback-{digest(place.id, id_, author.id, verdict)}"
        return Feedback(name, place.thread(root or id_), author, id_, verdict)
    if not (command := command_of(custom_id)):
        return None
    incoming = Incoming(
        id=f"press-{digest(place.id, id_, author.id, custom_id)}",
        thread=place.thread("" if ephemeral else root or id_),
        author=author,
        text=command,
        sent_at=sent_at(str(interaction.id)),
        via="mention",  # to the bot alone: it is always answered
        reply_address=reply_address(interaction),
    )
    return ButtonPress(incoming, place.id, id_, ephemeral)
