"""Answers that one person alone sees, to a slash command or to a press of a button.

The first answer to a slash command replaces the "thinking" that Discord shows. Every other answer is a message of its
own. Discord takes answers for 15 minutes (docs.discord.com, "Receiving and Responding"), from whoever knows the token
of the interaction. That is in the message (`ReplyAddress`), so after a restart another process can answer, and beside
it another worker. After 15 minutes the answer goes to the channel.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
from cachetools import TTLCache

from threads.errors import PostFailed
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.api.values import Button, ReplyAddress

log = logging.getLogger(__name__)

REMEMBERED = 1_000
ANSWER_WITHIN_S = 14 * 60.0
"""Discord takes answers for 15 minutes; one that comes late would be refused on its way."""

ACKNOWLEDGED_WITHIN_S, LOOK_S = 4.0, 0.5
"""Another process acknowledges an interaction within 3 s, or never; until then Discord does not know it."""

UNKNOWN = 10_062


@dataclass(slots=True)
class _Interaction:
    """``acknowledged``: Discord takes answers, or it is too late for that; None where another process does it."""

    address: ReplyAddress
    acknowledged: anyio.Event | None
    thinking: bool
    known_at: float = field(default_factory=anyio.current_time)


class EphemeralAnswers:
    """The interactions that can be answered, by their ids as messages."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._interactions: TTLCache[str, _Interaction] = TTLCache(
            REMEMBERED, ANSWER_WITHIN_S, anyio.current_time
        )

    def remember(self, message_id: str, address: str, acknowledged: anyio.Event) -> None:
        """Remember an interaction, which can be answered once it is *acknowledged*."""
        if parsed := ReplyAddress.parse(address):
            self._interactions[message_id] = _Interaction(parsed, acknowledged, parsed.thinking)

    async def answer(
        self, message_id: str, address: str, content: str, buttons: Sequence[Button] = ()
    ) -> str:
        """Answer that person alone and return the message's id.

        Raises `DiscordRefused` if Discord takes no answer, and another `PostFailed` if it may work later.
        """
        if (known := self._known(message_id, address)) is None:
            raise DiscordRefused("whisper", 404, UNKNOWN, "nobody waits for this answer any more")
        if known.acknowledged:
            await known.acknowledged.wait()
        while True:
            try:
                sent = await self._rest.answer_privately(
                    known.address, content, buttons, line=message_id, in_place=known.thinking
                )
            except DiscordRefused:
                if known.acknowledged or anyio.current_time() > known.known_at + ACKNOWLEDGED_WITHIN_S:
                    raise
                await anyio.sleep(LOOK_S)
            else:
                known.thinking = False
                return sent

    async def end_thinking(self, message_id: str, address: str = "") -> None:
        """End the "thinking" of a command that is answered elsewhere, or not at all. Never raises."""
        known = self._known(message_id, address)
        if known and known.thinking:
            known.thinking = False
            if known.acknowledged:
                await known.acknowledged.wait()
            try:
                await self._rest.end_thinking(known.address, line=message_id)
            except PostFailed as error:
                log.info("slash.left: a command shows that it is thinking, though it is over: %s", error)

    def _known(self, message_id: str, address: str) -> _Interaction | None:
        """Return an interaction that came here, or by its address one that came to another process."""
        if message_id not in self._interactions and (parsed := ReplyAddress.parse(address)):
            self._interactions[message_id] = _Interaction(parsed, None, parsed.thinking)
        return self._interactions.get(message_id)
