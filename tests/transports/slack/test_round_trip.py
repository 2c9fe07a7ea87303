"""Whatever people see in Slack reaches the model, on every way in: each row of the catalogue, in a whole bot."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from docs.generate.reading import slack as catalogue
from tests.fakes.slack import FakeSlack
from tests.transports.slack.bot import bot_in
from tests.transports.slack.test_slack_story import answers
from tests.world import Scripted
from transports.slack.events.message_words import quotations
from transports.slack.events.parse_message import CANVAS

FORWARDED = {"is_share": True, "author_name": "Ben", "fallback": "[no preview available]"}


@dataclass
class Part:
    """Some rows of the catalogue in one message: its fields, and the lines that the model reads."""

    fields: dict
    lines: list[str]


def lines_of(text):
    """Return the lines of a text, without the marks of quotes."""
    return [stripped for line in text.splitlines() if (stripped := line.lstrip("> "))]


def part(rows, **fields):
    return Part(fields, lines_of("\n".join(row.reads for row in rows)))


def blocks(rows):
    return part(rows, blocks=[{"type": row.kind, **row.shape} for row in rows])


def attachments(rows):
    return part(rows, attachments=[row.shape for row in rows])


OTHERS = [row for row in catalogue.ATTACHMENTS if quotations({"attachments": [row.shape]})]
OWN = [row for row in catalogue.ATTACHMENTS if row not in OTHERS]
"""What others say in a message stands above what its author says."""

PARTS = [
    *map(blocks, (catalogue.BLOCKS, catalogue.TEXTS, catalogue.ELEMENTS, catalogue.RICH_TEXT)),
    *map(attachments, (OWN, OTHERS)),
]


@dataclass
class Place:
    """A channel and a person with a direct channel: Slack takes one post a second in each channel."""

    slack: FakeSlack
    number: int

    def __post_init__(self):
        self.user, self.channel, self.direct = (f"{kind}{100 + self.number}" for kind in "UCD")
        self.slack.user(self.user)
        self.slack.channel(self.channel)
        self.slack.channel(self.direct, kind="im", user=self.user)

    async def mention(self, fields):
        said = await self.slack.say(self.user, self.channel, "<@UBOT> look", **fields)
        return self.channel, said.ts

    async def direct_message(self, fields):
        said = await self.slack.say(self.user, self.direct, "", **fields)
        return self.direct, said.ts

    async def earlier_line(self, fields):
        root = await self.slack.say("U2", self.channel, "look", **fields)
        await self.slack.say(self.user, self.channel, "<@UBOT> what is this?", thread_ts=root.ts)
        return self.channel, root.ts

    async def forward(self, fields):
        shared = {**FORWARDED, "message_blocks": [{"message": fields}]}
        said = await self.slack.say(self.user, self.direct, "", attachments=[shared])
        return self.direct, said.ts

    async def edit(self, fields):
        said = await self.slack.say(self.user, self.channel, "look", **fields)
        await self.slack.edit(said.ts, "<@UBOT> look")
        return self.channel, said.ts

    async def missed(self, fields):
        said = self.slack.say(self.user, self.channel, "<@UBOT> look", quiet=True, **fields)
        return self.channel, said.ts


@asynccontextmanager
async def workspace():
    async with FakeSlack() as slack:
        slack.user("U2", "Ann")
        slack.channel("C2", "general")
        slack.groups["S1"] = "ops"
        yield slack


async def known(slack, data, places):
    """Let a bot hear of the channels once, and stop it."""
    async with bot_in(slack, data, Scripted()):
        for place in places:
            await slack.say("U1", place.channel, "just talking")


def read_by(model, words):
    """Return the lines of the request in which a line holds these words."""
    texts = [
        "\n".join(getattr(one, "text", "") for one in asked.messages[-1].blocks) for asked in model.requests
    ]
    return next(lines for lines in map(lines_of, texts) if any(words in line for line in lines))


def holds(lines, some):
    return any(lines[at : at + len(some)] == some for at in range(len(lines)))


WAYS = ["mention", "direct_message", "earlier_line", "forward", "edit"]


@pytest.mark.parametrize("way", WAYS)
async def test_each_row_of_the_catalogue_reaches_the_model(tmp_path, way):
    model = Scripted()
    async with workspace() as slack, bot_in(slack, tmp_path, model):
        asked = [await getattr(Place(slack, n), way)(part.fields) for n, part in enumerate(PARTS)]
        await slack.until(lambda: all(answers(slack, *where) for where in asked))
    for part in PARTS:
        assert holds(read_by(model, part.lines[0]), part.lines)


async def test_each_row_of_the_catalogue_reaches_the_model_after_a_restart(tmp_path):
    model = Scripted()
    async with workspace() as slack:
        places = [Place(slack, n) for n in range(len(PARTS))]
        await known(slack, tmp_path, places)
        asked = [await place.missed(part.fields) for place, part in zip(places, PARTS, strict=True)]
        async with bot_in(slack, tmp_path, model):
            await slack.until(lambda: all(answers(slack, *where) for where in asked))
    for part in PARTS:
        assert holds(read_by(model, part.lines[0]), part.lines)


SPOKEN = [row for row in catalogue.SAID if row.kind != "bot_message"]
LINES = [*SPOKEN, *catalogue.NOTED]


@pytest.mark.parametrize("missed", [False, True], ids=["heard", "missed"])
async def test_each_subtype_reaches_the_model_as_a_message_or_as_an_earlier_line(tmp_path, missed):
    model = Scripted()
    async with workspace() as slack:
        places = [Place(slack, number) for number in range(len(SPOKEN) + 2)]
        listening = list(zip(places[-2:], (LINES[::2], LINES[1::2]), strict=True))
        await known(slack, tmp_path, places)

        async def say(user, channel, words, **more):
            said = slack.say(user, channel, words, quiet=missed, **more)
            await said
            return said.ts

        async def talk():
            asked = list[tuple[str, str]]()
            for place, row in zip(places, SPOKEN, strict=False):
                ts = await say(place.user, place.direct, row.shape["text"], subtype=row.kind or None)
                asked.append((place.direct, ts))
            for place, rows in listening:
                root = await say("U2", place.channel, "look")
                for row in rows:
                    kind = row.kind or None
                    await say("U2", place.channel, row.shape["text"], subtype=kind, thread_ts=root)
                await say(place.user, place.channel, "<@UBOT> why?", thread_ts=root)
                asked.append((place.channel, root))
            return asked

        asked = await talk() if missed else []
        async with bot_in(slack, tmp_path, model):
            asked = asked or await talk()
            await slack.until(lambda: all(answers(slack, *where) for where in asked))
    for place, row in zip(places, SPOKEN, strict=False):
        assert row.reads in read_by(model, place.user)
    for place, rows in listening:
        assert {f"[Ann (U2)] {row.reads}" for row in rows} <= set(read_by(model, place.user))


async def test_a_kind_of_tomorrow_is_named_to_the_model_and_counted(tmp_path):
    model, counted = Scripted(), []
    async with workspace() as slack, bot_in(slack, tmp_path, model) as edge:
        edge.count_unread = counted.append
        said = await slack.say("U1", "D1", "see", blocks=[{"type": "hologram"}])
        await slack.until(lambda: answers(slack, "D1", said.ts))
    assert holds(read_by(model, "see"), ["see", "[a block of type hologram that I cannot read]"])
    assert counted == ["hologram"]


FILES = [row for row in catalogue.FILES if row.reads]
STORED = "5 bytes"
"""What stands in the request for a file that was read."""


def file_of(slack, row):
    """Return a file of this mode as people see it in a message."""
    return slack.new_file(
        "notes.txt",
        b"hello",
        "text/plain",
        user="U1",
        shown={"mode": row.kind if row.kind != "file_access" else "hosted", **row.shape},
        withheld=row.kind == "file_access",
    )


@pytest.mark.parametrize("way", [*WAYS, "missed"])
async def test_a_file_of_each_mode_is_read_or_has_its_true_reason(tmp_path, way):
    model = Scripted()
    async with workspace() as slack:
        places = [Place(slack, n) for n in range(len(FILES))]
        if way == "missed":
            await known(slack, tmp_path, places)
            asked = [
                await place.missed({"files": [file_of(slack, row)]})
                for place, row in zip(places, FILES, strict=True)
            ]
        async with bot_in(slack, tmp_path, model):
            if way == "forward":
                shown = [{**FORWARDED, "files": [file_of(slack, row).view()]} for row in FILES]
                asked = [
                    await place.direct_message({"attachments": [one]})
                    for place, one in zip(places, shown, strict=True)
                ]
            elif way != "missed":
                asked = [
                    await getattr(place, way)({"files": [file_of(slack, row)]})
                    for place, row in zip(places, FILES, strict=True)
                ]
            await slack.until(lambda: all(answers(slack, *where) for where in asked))
    for place, row in zip(places, FILES, strict=True):
        lines = read_by(model, place.user)
        name = "Plan.html" if row.kind in CANVAS else "notes.txt"
        words = STORED if row.reads == "hello" else row.reads
        assert any(name in line and words in line for line in lines), row.kind
