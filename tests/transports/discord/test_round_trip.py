"""What people see in a message reaches the model, wherever the message stands: the catalogue, from wire to request."""

from __future__ import annotations

import pytest

from docs.generate.reading import discord as catalogue
from tests.fakes.discord import BOT, CHANNEL, CHANNEL2, U1, U2, FakeDiscord
from tests.fakes.discord.views import message_view
from tests.transports.discord.bot import answers, bot_in
from tests.transports.discord.test_reading import V2, number_of
from tests.transports.settling import until_settled
from tests.world import Scripted

NAMED = f"<@{BOT}>"
AT_ONCE = 10
"""Messages that wait while a turn runs, which then takes all of them."""

IN_A_THREAD = 40
"""Lines of a thread before the bot is asked in: more are not shown to the model."""

CARDS = [(row.shape, row.reads) for row in catalogue.EMBEDS]
"""Cards count where there is no text beside them: else they are previews of a person's links."""

COMPONENTS = [
    ({"components": [{"type": number_of(row.kind), **row.shape}], **V2}, row.reads)
    for row in catalogue.COMPONENTS
]
HELD = ("content", "embeds", "components", "stickers", "attachments")
"""The parts that a forward has."""

PARTS = [
    (row.shape, row.reads) for row in catalogue.PARTS if row.kind not in ("reference", "message_snapshots")
]
FORWARDED = [(row.shape, row.reads) for row in catalogue.PARTS if row.kind in HELD]
STICKERS = [(row.shape, row.reads) for row in catalogue.STICKERS]

WITH_TEXT = [row for row in [*COMPONENTS, *PARTS, *STICKERS] if "embeds" not in row[0]]
ALL = [*CARDS, *COMPONENTS, *PARTS, *STICKERS]


class Round:
    """A loopback Discord in which somebody shows the bot each row."""

    def __init__(self, discord, data):
        self.discord, self.data, self.model, self.expected = discord, data, Scripted(), set()

    def say(self, row, where, text="", *, by=U1, quiet=False, **more):
        """Show a row. *text* is said as well."""
        shape, reads = row
        self.expected |= {*filter(None, reads.splitlines())}
        content = " ".join(filter(None, (text, shape.get("content", ""))))
        return self.discord.say(by, where, content, quiet=quiet, parts={**shape, "content": content}, **more)

    async def joined(self):
        """Return a thread that the bot has joined."""
        said = await self.discord.say(U1, CHANNEL, f"{NAMED} hi")
        await self.discord.until(lambda: answers(self.discord, said.id))
        return said.id

    async def all_of(self, rows, show):
        """Show rows, some at once; *show* returns the message to the bot."""
        for first in range(0, len(rows), AT_ONCE):
            said = [show(row) for row in rows[first : first + AT_ONCE]]
            ends = await until_settled(self.data, *(one.id for one in said))
            assert {ends[one.id] for one in said} <= {"answered", "merged"}

    def missing(self):
        """Return the lines that people saw and the model did not read."""
        messages = [message for request in self.model.requests for message in request.messages]
        texts = {block.text for message in messages for block in message.blocks}
        lines = {line.strip("> ") for text in texts for line in text.splitlines()}
        # of an earlier line, the first one has its author
        lines |= {line.partition("] ")[2] for line in lines}
        return {line for line in self.expected if line.strip("> ") not in lines}


async def direct(at):
    dm = at.discord.dm(U1)
    await at.all_of([row for row in ALL if row[1]], lambda row: at.say(row, dm))


async def mention(at):
    thread = await at.joined()
    await at.all_of(WITH_TEXT, lambda row: at.say(row, thread, NAMED))


async def earlier(at):
    for first in range(0, len(ALL), IN_A_THREAD):
        root = at.discord.say(U2, CHANNEL2, "look at these")
        thread = await at.discord.thread(U2, root, f"rows {first}")
        for row in ALL[first : first + IN_A_THREAD]:
            at.say(row, thread.id, by=U2)
        asked = await at.discord.say(U1, thread.id, f"{NAMED} what are they?")
        await until_settled(at.data, asked.id)


async def reply(at):
    thread = await at.joined()

    def show(row):
        to = at.say(row, thread, by=U2, quiet=True)
        return at.discord.say(U1, thread, "what is that?", reply_to=to, ping=False)

    await at.all_of(ALL, show)


async def reply_not_given_along(at):
    thread = await at.joined()

    def show(row):
        to = at.say(row, thread, by=U2, quiet=True)
        said = at.discord.say(U1, thread, "what is that?", reply_to=to, ping=False, quiet=True)
        event = message_view(at.discord, said, event=True)
        del event["referenced_message"]
        at.discord._tell_message("MESSAGE_CREATE", said, event)
        return said

    await at.all_of(ALL, show)


async def forward(at):
    dm = at.discord.dm(U1)
    rows = [row for row in [*CARDS, *COMPONENTS, *FORWARDED, *STICKERS] if row[1]]

    def show(row):
        of = at.say(row, CHANNEL2, by=U2, quiet=True)
        at.discord.say(U1, dm, forward_of=of)
        return at.discord.say(U1, dm, "what is that?")

    await at.all_of(rows, show)


async def edit(at):
    thread = await at.joined()

    def show(row):
        said = at.say(row, thread, f"<@{U2}>")
        said.parts["content"] = said.parts["content"].replace(f"<@{U2}>", NAMED)
        return at.discord.edit(said, said.parts["content"])

    await at.all_of(WITH_TEXT, show)


@pytest.mark.parametrize(
    "way",
    [direct, mention, earlier, reply, reply_not_given_along, forward, edit],
    ids=lambda way: way.__name__,
)
async def test_each_row_reaches_the_model(tmp_path, way):
    async with FakeDiscord() as discord:
        at = Round(discord, tmp_path)
        async with bot_in(discord, tmp_path, at.model):
            await way(at)
        assert at.expected
        assert at.missing() == set()


async def test_each_row_reaches_the_model_after_a_restart(tmp_path):
    async with FakeDiscord() as discord:
        at = Round(discord, tmp_path)
        async with bot_in(discord, tmp_path, at.model):
            thread = await at.joined()
            begun = await discord.say(U1, discord.dm(U1), "hi")
            await until_settled(tmp_path, begun.id)
        rows = [row for row in ALL if row[1]]
        said = [at.say(row, discord.dm(U1), quiet=True) for row in rows[::2]]
        said += [at.say(row, thread, NAMED, quiet=True) for row in PARTS]
        async with bot_in(discord, tmp_path, at.model):
            await until_settled(tmp_path, *(one.id for one in said))
        assert at.missing() == set()
