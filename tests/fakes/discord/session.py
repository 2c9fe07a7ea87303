"""A session of the gateway: its events are numbered and kept, so that it can be resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.fakes.discord.ids import BOT
from tests.fakes.discord.records import Channel, Message

if TYPE_CHECKING:
    from tests.fakes.discord.link import Link

GUILDS, MEMBERS, PRESENCES, MESSAGE_CONTENT = 1 << 0, 1 << 1, 1 << 8, 1 << 15
IN_GUILD = {"messages": 1 << 9, "reactions": 1 << 10, "typing": 1 << 11}
DIRECT = {"messages": 1 << 12, "reactions": 1 << 13, "typing": 1 << 14}


class Session:
    def __init__(self, id: str, intents: int, link: Link) -> None:
        self.id, self.intents = id, intents
        self.link: Link | None = link
        self.seq = 0
        self.kept: list[tuple[int, str]] = []
        """(number, frame) of every event so far."""

    def wants(self, family: str, channel: Channel | None) -> bool:
        """Whether the intents cover an event of that family; "" is told to everybody.

        Without a channel, and for whispers in any, the intents of direct messages count.
        """
        match family:
            case "":
                return True
            case "guilds":
                return bool(self.intents & GUILDS)
            case "members":
                return bool(self.intents & MEMBERS)
            case _:
                bits = IN_GUILD if channel and channel.guild else DIRECT
                return bool(self.intents & bits[family])

    def sees(self, message: Message, channel: Channel) -> bool:
        """Whether it is told the content: with the intent, in direct messages, of the bot's own, if it is mentioned."""
        open_to_it = self.intents & MESSAGE_CONTENT or not channel.guild
        return bool(open_to_it) or message.author == BOT or BOT in message.mentions

    def tell(self, event: str, data: str) -> None:
        """Number an event (*data* is JSON already), keep it, and send it if there is a link."""
        self.seq += 1
        frame = f'{{"t":"{event}","s":{self.seq},"op":0,"d":{data}}}'
        self.kept.append((self.seq, frame))
        if self.link:
            self.link.send(frame)

    def replay(self, after: int) -> None:
        """Send again what came after that number, then RESUMED."""
        for number, frame in self.kept:
            if number > after and self.link:
                self.link.send(frame)
        self.tell("RESUMED", json.dumps({"_trace": []}))
