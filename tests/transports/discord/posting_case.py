"""A person's question in a Discord that can fail at every point, and what answers it: the real client underneath."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import anyio

from tests.fakes.discord import BOT, CHANNEL, GUILD, U1, FakeDiscord
from threads.model import Outgoing, ThreadId
from transports.base.transport import Capabilities
from transports.discord.api.options import Options
from transports.discord.api.rest import open_rest
from transports.discord.markdown.buttons import stop_button
from transports.discord.post.ephemeral_answers import EphemeralAnswers
from transports.discord.post.nonces import nonce_of
from transports.discord.post.posting import Posting
from transports.discord.post.rewrite import DraftMessage
from transports.discord.post.thread_opening import Destinations
from transports.shared.delivery.outbox import Outbox

LIMIT = 10 * 2**20


@asynccontextmanager
async def discord_and_rest(**options):
    async with FakeDiscord(**options) as discord, open_rest(discord.api_base_url, discord.token) as rest:
        await rest.login()
        yield discord, rest


class PostingCase:
    """What answers one question: by default it mentions the bot in a channel, and a thread is due."""

    def __init__(self, discord, rest, question, thread=None, in_place=(), feedback=False):
        self.feedback = feedback
        self.discord, self.rest, self.in_place = discord, rest, frozenset(in_place)
        self.question = question.id
        self.thread = thread or ThreadId("discord", GUILD, question.channel, question.id)
        self.limit = LIMIT
        self.restart()
        if thread is None:
            self.destinations.note_question(self.thread, question.content)

    @classmethod
    async def start(cls, discord, rest, channel=CHANNEL, text=f"<@{BOT}> how?", **more):
        return cls(discord, rest, await discord.say(U1, channel, text), **more)

    @classmethod
    async def in_dm(cls, discord, rest):
        channel = discord.dm(U1)
        question = await discord.say(U1, channel, "how?")
        return cls(discord, rest, question, ThreadId("discord", "@me", channel, channel))

    async def follow_up(self, text="and then?"):
        """Return the case of another question in the same thread, which shares what posts."""
        said = await self.discord.say(U1, self.thread.root, text)
        other = PostingCase(self.discord, self.rest, said, self.thread, self.in_place)
        other.posting, other.destinations = self.posting, self.destinations
        return other

    def restart(self):
        """A new process: nothing is remembered."""
        self.answers = EphemeralAnswers(self.rest)
        self.destinations = Destinations(self.rest, self.in_place)
        self.posting = Posting(
            self.rest,
            self.destinations,
            self.answers,
            lambda _: self.limit,
            Options("", feedback=self.feedback),
            lambda: datetime.fromtimestamp(self.discord.wall(), UTC),
        )

    @property
    def key(self):
        return f"discord:{self.thread.workspace}:{self.thread.channel}:{self.question}"

    def answer(self, text="an answer", **more):
        return replace(Outgoing(self.thread, self.key, text, "reply", self.question, (), U1), **more)

    async def post(self, text="an answer", draft=(), **more):
        return await self.posting.post(self.answer(text, **more), draft)

    async def find(self, live=(), key=None):
        return await self.posting.find(self.thread, key or self.key, live=live)

    async def draft(self, text, part=0, *, key=None, stop=True, channel=None):
        """A live message, as the presence makes it."""
        channel = channel or (await self.destinations.open(self.thread)).channel
        key = key or self.key
        buttons = [stop_button(nonce_of(key))] if stop else []
        sent = await self.rest.send(channel, text, nonce=nonce_of(key, part), buttons=buttons)
        return DraftMessage(channel, str(sent.id), text)

    def outbox(self, draft=()):
        case = self

        class Through:
            name, capabilities = "discord", Capabilities(find=True)

            async def post(self, outgoing):
                return await case.posting.post(outgoing, draft)

            async def find(self, thread, key):
                found = await case.posting.find(thread, key, live=[message.id for message in draft])
                if found:
                    await case.posting.clear(thread, key, draft)
                return found

            async def reconnected(self):
                await anyio.lowlevel.checkpoint()

        return Outbox(Through(), anyio.lowlevel.checkpoint)

    def posts(self, channel=None):
        """Our messages in the thread, or there."""
        return self.discord.posts(channel or self.thread.root)

    def visible(self, channel=None):
        """What people see of ours in the thread, or there."""
        return [" ".join(message.files) or message.content for message in self.posts(channel)]
