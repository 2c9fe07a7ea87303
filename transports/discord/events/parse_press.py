"""A press of a button as a message: the command of the button; pure.

A second press by the same person is the same message. The ``custom_id`` holds all, so buttons outlive a restart.
"""

from __future__ import annotations

from dataclasses import dataclass

import discord

from threads.model import Incoming
from transports.base.text import digest
from transports.discord.api.values import Place
from transports.discord.events.interactions import author_of, reply_address
from transports.discord.events.parse_message import sent_at
from transports.discord.markdown.buttons import command_of

EXPIRED = "This button does not work any more. Say what you would like to do instead."
"""The answer to a press of an unknown button; without one Discord says "This interaction failed"."""


@dataclass(frozen=True, slots=True)
class ButtonPress:
    """A choice that a person made: ``channel`` and ``message`` are where the button is.

    An ``ephemeral`` message is one that only this person sees.
    """

    incoming: Incoming
    channel: str
    message: str
    ephemeral: bool = False


def parse_press(interaction: discord.Interaction, place: Place, *, root: str = "") -> ButtonPress | None:
    """Read a press; None for an unknown button (`EXPIRED` is the answer). Never raises.

    *root* is the first message of the conversation that the message with the button belongs to, where the bot
    answers in place (`ReplyChains`).
    """
    message, author, custom_id = interaction.message, author_of(interaction), _custom_id(interaction)
    command = command_of(custom_id)
    if not command or message is None or author is None:
        return None
    id_, ephemeral = str(message.id), message.flags.ephemeral
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


def _custom_id(interaction: discord.Interaction) -> str:
    data: object = interaction.data
    custom_id = data.get("custom_id") if isinstance(data, dict) else None
    return custom_id if isinstance(custom_id, str) else ""
