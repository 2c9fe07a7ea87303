"""Events: who is told what.

An event goes to every session. One without a link keeps its events until it is resumed; what happens while there is
no session is lost, and only the history has it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.fakes.discord.ids import Json
from tests.fakes.discord.link import Link
from tests.fakes.discord.records import Channel, Message
from tests.fakes.discord.session import Session
from tests.fakes.discord.views import redacted
from tests.fakes.discord.world import World


class EventDelivery(World):
    def __init__(self, *times: Any) -> None:
        super().__init__(*times)
        self.links: list[Link] = []
        self.sessions: dict[str, Session] = {}

    def tell(
        self,
        event: str,
        data: Json,
        *,
        family: str = "guilds",
        channel: Channel | None = None,
        message: Message | None = None,
        whisper: bool = False,
    ) -> None:
        """Send an event to every session whose intents cover it, if the bot may see the channel.

        A *whisper* is told as if it were a direct message, wherever it is (discord-api-docs #4557). Of a *message* only
        those see the content who may.
        """
        if channel and not self.may(channel, "VIEW_CHANNEL"):
            return
        whole, hidden = json.dumps(data), ""
        for session in self._sessions():
            if not session.wants(family, None if whisper else channel):
                continue
            if message and channel and not session.sees(message, channel):
                hidden = hidden or json.dumps(redacted(data))
                session.tell(event, hidden)
            else:
                session.tell(event, whole)
        self.changed()

    def _sessions(self) -> list[Session]:
        """Those that can be resumed, and those that have lost that but have a link."""
        linked = [link.session for link in self.links if link.session]
        return list({session.id: session for session in [*self.sessions.values(), *linked]}.values())

    async def settle(self) -> None:
        """Wait until every event is on the wire."""
        for link in list(self.links):
            if not link.frozen:
                await asyncio.wait({asyncio.ensure_future(link.drained())}, timeout=5.0)

    def cut_links(self) -> None:
        for link in list(self.links):
            link.abort()
