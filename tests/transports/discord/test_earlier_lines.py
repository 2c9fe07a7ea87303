"""The earlier lines of a thread, with its title and the message that it is about, over the wire."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from tests.fakes.discord import BOT, CHANNEL, FORUM, GUILD, U1, U2, FakeDiscord
from tests.patience import WITHIN_S
from tests.transports.discord.bot import transport
from tests.transports.settling import beside
from threads.model import Earlier, ThreadId

HISTORY, MESSAGE, PLACE = (f"GET /channels/{{}}{more}" for more in ("/messages", "/messages/{}", ""))


async def nothing(_):
    return None


class Opened:
    """A thread in a loopback Discord, and our transport."""

    def __init__(self, discord, edge):
        self.discord, self.edge = discord, edge
        self.thread = ThreadId("discord", GUILD, CHANNEL, "")

    async def opened_from(self, text, **more):
        root = await self.discord.say(U1, CHANNEL, text, **more)
        await self.discord.thread(U1, root, "deploy of friday")
        return self._in(CHANNEL, root.id)

    async def posted(self, text):
        thread = await self.discord.post(U1, FORUM, "Why is it slow?", text)
        return self._in(FORUM, thread.id)

    async def loose(self):
        thread = await self.discord.loose_thread(U1, CHANNEL, "just so")
        return self._in(CHANNEL, thread.id)

    def _in(self, channel, root):
        self.thread = ThreadId("discord", GUILD, channel, root)
        return self

    async def says(self, *lines):
        for line in lines:
            last = self.discord.say(U2, self.thread.root, line)
        await last
        await self.discord.until(lambda: self.edge._connection.earlier._channels.known(self.thread.root))
        return last.id

    async def earlier(self, before, after=""):
        self.discord.calls.clear()
        return await self.edge.earlier(self.thread, before, after)

    def asked(self):
        return [call.route for call in self.discord.calls if call.route.startswith("GET")]


@asynccontextmanager
async def place(tmp_path):
    async with FakeDiscord() as discord:
        edge = transport(discord, tmp_path)
        async with beside(partial(edge.serve, nothing)):
            with anyio.fail_after(WITHIN_S):
                await edge.reconnected()
            await discord.until(lambda: discord.ready)
            yield Opened(discord, edge)


def texts(earlier):
    return [line.text for line in earlier.lines]


async def test_a_thread_has_its_title_and_the_message_it_was_opened_from_in_one_call(tmp_path):
    async with place(tmp_path) as at:
        await at.opened_from("is it up?", files=[("app.log", b"x", "text/plain")])
        asked = await at.says("yes", "no", "@bot?")
        earlier = await at.earlier(asked)
        expected = ("deploy of friday", ["is it up?\n[file: app.log]", "yes", "no"])
        assert (earlier.title, texts(earlier)) == expected
        assert at.asked() == [HISTORY]
        root = earlier.lines[0]
        assert (root.id, [file.name for file in root.files]) == (at.thread.root, ["app.log"])
        async with at.edge.download(root.files[0]) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"x"


@pytest.mark.parametrize("kind", ["opened_from", "posted", "loose"])
async def test_of_a_long_thread_the_beginning_stays_and_what_is_left_out_is_counted(tmp_path, kind):
    async with place(tmp_path) as at:
        await (at.loose() if kind == "loose" else getattr(at, kind)("line 0"))
        begun = 1 if kind == "loose" else 0
        asked = await at.says(*(f"line {number}" for number in range(1 - begun, 250)), "@bot?")
        earlier = await at.earlier(asked)
        assert texts(earlier) == ["line 0", *(f"line {number}" for number in range(150, 250))]
        assert earlier.left_out == 149
        assert len(at.asked()) <= 4


async def test_the_root_is_asked_for_in_the_channel_when_the_thread_does_not_give_it(tmp_path):
    async with place(tmp_path) as at:
        await at.opened_from("is it up?")
        pointer = at.discord.messages(at.thread.root)[0]
        asked = await at.says("yes", "@bot?")
        await at.discord.delete(pointer)
        assert texts(await at.earlier(asked)) == ["is it up?", "yes"]
        assert at.asked() == [HISTORY, MESSAGE]
        first = at.discord.messages(at.thread.root)[0]
        assert texts(await at.earlier(first.id)) == ["is it up?"]


async def test_a_deleted_root_is_said_to_be_gone(tmp_path):
    async with place(tmp_path) as at:
        await at.opened_from("is it up?")
        asked = await at.says("yes", "@bot?")
        await at.discord.delete(at.thread.root)
        [gone, line] = texts(await at.earlier(asked))
        assert "is deleted, or hidden from me" in gone
        assert line == "yes"


async def test_a_question_that_begins_a_thread_has_its_title_and_costs_no_call(tmp_path):
    async with place(tmp_path) as at:
        await at.posted("how?")
        await at.discord.until(lambda: at.edge._connection.earlier._channels.known(at.thread.root))
        assert await at.earlier(at.thread.root) == Earlier(title="Why is it slow?")
        at._in(CHANNEL, (await at.discord.say(U1, CHANNEL, "a question")).id)
        assert await at.earlier(at.thread.root) == Earlier()
        assert at.asked() == []


async def test_a_thread_that_the_bot_opened_has_no_title_to_tell(tmp_path):
    async with place(tmp_path) as at:
        asked = await at.discord.say(U1, CHANNEL, "a question")
        at._in(CHANNEL, asked.id)
        await at.discord.thread(BOT, asked, "a question")
        await at.discord.until(lambda: at.edge._connection.earlier._channels.known(asked.id))
        assert await at.earlier(asked.id) == Earlier()


async def test_what_came_after_a_message_takes_one_call_or_is_counted(tmp_path):
    async with place(tmp_path) as at:
        await at.opened_from("is it up?")
        after = await at.says("yes", "before")
        asked = await at.says("new one", "new two", "@bot?")
        earlier = await at.earlier(asked, after)
        assert (texts(earlier), earlier.title) == (["new one", "new two"], "")
        assert at.asked() == [HISTORY]
        assert texts(await at.earlier(after, at.thread.root)) == ["yes"], (
            "the root is not a line below itself"
        )
        assert at.asked() == [HISTORY]
        asked = await at.says(*(f"line {number}" for number in range(230)), "@bot?")
        earlier = await at.earlier(asked, after)
        assert texts(earlier) == [f"line {number}" for number in range(130, 230)]
        assert earlier.left_out == 130 + len(["new one", "new two", "@bot?"])


async def test_what_discord_itself_says_in_a_thread_is_a_line(tmp_path):
    async with place(tmp_path) as at:
        await at.opened_from("is it up?")
        at.discord.system(at.thread.root, 4, user=U1, text="deploy of monday")
        asked = await at.says("@bot?")
        assert texts(await at.earlier(asked)) == ["is it up?", "[Ada changed the name: deploy of monday]"]
