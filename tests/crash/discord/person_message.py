"""A message that a person says in Discord."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tests.fakes.discord.ids import Json
from tests.fakes.discord.records import Message


@dataclass(slots=True)
class PersonMessage:
    """One message of a person. ``must``: it is owed an outcome. ``beside``: it is not for the bot at all."""

    token: str
    thread: str
    user: str
    texts: list[str]
    message: Message
    must: bool
    command: bool = False
    beside: bool = False
    deleted: bool = False
    at: float = field(default_factory=time.monotonic)

    def line(self, acked_at: float | None) -> Json:
        return {
            "id": self.message.id,
            "ids": [self.message.id],
            "thread": self.thread,
            "threads": [self.thread],
            "token": self.token,
            "text": self.texts[0],
            "texts": self.texts,
            "must": self.must and not self.deleted,
            "command": self.command,
            "deleted": self.deleted,
            "beside": self.beside,
            "alone": False,
            "said_at": self.at,
            "acked_at": acked_at,
        }
