"""A press, a command or typing in a command's option, from the person's side: was it acknowledged, and what came."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.discord.ids import Json
from tests.fakes.discord.records import Message

COMMAND, COMPONENT, AUTOCOMPLETE = 2, 3, 4
TOKEN_LASTS = 900.0
"""Seconds for which an acknowledged interaction can be answered."""


@dataclass(eq=False)
class Interaction:
    """``await`` it: it was acknowledged, or its deadline is over.

    ``kind`` is the type of the acknowledgement: 4 a message, 5 "thinks", 6 nothing to see,
    8 choices. ``answers`` are the messages that came of it, visible or whispered, in order.
    """

    id: str
    token: str
    type: int
    user: str
    channel: str
    sent_at: float
    deadline: float
    message: Message | None = None
    kind: int = 0
    ephemeral: bool = False
    answers: list[Message] = field(default_factory=list)
    choices: list[Json] = field(default_factory=list)
    original: Message | None = None
    expired: bool = False
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def acked(self) -> bool:
        return self.kind != 0

    @property
    def contents(self) -> list[str]:
        """What the person reads in answer now."""
        return [one.content for one in self.answers if not one.deleted]

    def __await__(self) -> Generator[Any, None, Interaction]:
        return self._settled().__await__()

    async def _settled(self) -> Interaction:
        try:
            async with asyncio.timeout(self.deadline):
                await self.heard.wait()
        except TimeoutError:
            self.expired = True
        return self
