"""The least that answers on Discord: discord.py, the openai SDK, a list a thread.

A mention opens a thread. It keeps nothing, asks nobody's permission and retries nothing but what discord.py does. In
a direct message the answer grows by edits, at the pace that leaves room in a channel's limit.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import discord
from discord.gateway import DiscordWebSocket
from discord.http import Route
from openai import AsyncOpenAI
from yarl import URL

from benchmarks.wire.peers.bare_agent import Agent

SPACING_S = 1.3
MESSAGE = 1_900
"""Characters of a message, of which Discord takes 2,000; then another one begins."""


class Bot(discord.Client):
    def __init__(self) -> None:
        intents = discord.Intents.default()
        intents.message_content = True
        super().__init__(
            intents=intents,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            allowed_mentions=discord.AllowedMentions.none(),
        )
        self._agent = Agent(AsyncOpenAI(api_key="none", base_url=os.environ["MODEL_URL"]))
        self._histories: dict[int, list[Any]] = defaultdict(list)

    async def on_message(self, message: discord.Message) -> None:
        if message.author == self.user:
            return
        if message.guild is None:
            await self._stream(message.channel, self._answer(message.channel.id, message.content))
        elif self.user in message.mentions:
            place: Any = message.channel
            if not isinstance(place, discord.Thread):
                place = await message.create_thread(name=message.content[:80])
            answer = self._answer(place.id, message.content)
            await place.send("".join([piece async for piece in answer]))

    def _answer(self, place: int, text: str) -> AsyncIterator[str]:
        return self._agent.answer(self._histories[place], text)

    async def _stream(self, place: Any, answer: AsyncIterator[str]) -> None:
        """Show the answer as it grows, in as many messages as it takes."""
        post: Any = None
        text, shown, at = "", "", 0.0
        async for piece in answer:
            if len(text) + len(piece) > MESSAGE:
                await _show(place, post, text)
                post, text, shown, at = None, "", "", time.monotonic()
            text += piece
            if text != shown and time.monotonic() - at >= SPACING_S:
                post = await _show(place, post, text)
                shown, at = text, time.monotonic()
        if text != shown:
            await _show(place, post, text)


async def _show(place: Any, post: Any, text: str) -> Any:
    return await post.edit(content=text) if post else await place.send(text)


if __name__ == "__main__":
    Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = (
        os.environ["DISCORD_API"],
        URL(os.environ["DISCORD_GATEWAY"]),
    )
    asyncio.run(Bot().start(os.environ["DISCORD_TOKEN"]))
