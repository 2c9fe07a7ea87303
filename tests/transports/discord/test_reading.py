"""What people see in a Discord message, the model reads: the catalogue, through the library's own parsing."""

from __future__ import annotations

import discord
import pytest
from discord.types.embed import Embed
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.generate.reading import discord as catalogue
from tests.transports.discord.payloads import BOB, DIRECT, DM, ME, OTHER_BOT, client, file, replying, said
from threads.model import with_quoted
from transports.discord.api.payloads import DEEPEST
from transports.discord.api.sdk import read_message
from transports.discord.events.components import KINDS
from transports.discord.events.message_text import text_and_quoted
from transports.discord.events.notices import COMMAND_TYPES, NOTICES, SPOKEN_TYPES
from transports.discord.events.parse_message import parse_message, parse_spoken

V2 = {"flags": 1 << 15}


def received(data):
    """Read a message as the gateway does."""
    made, found = client(), []
    made._connection.dispatch = lambda _, *args: found.extend(args)
    read_message(made._connection.parsers["MESSAGE_CREATE"], data)
    return found[0]


def in_chat(**shape):
    data = said("", channel=DM)
    return received({**data, **shape})


def number_of(name):
    return discord.ComponentType[name].value


@pytest.mark.parametrize("row", catalogue.COMPONENTS, ids=lambda row: row.kind)
def test_each_component_of_the_catalogue_is_read_as_it_says(row):
    message = in_chat(components=[{"type": number_of(row.kind), **row.shape}], **V2)
    assert text_and_quoted(message, ME) == (row.reads, "")
    assert row.reads or row.why, "nothing without a reason"


@pytest.mark.parametrize(
    "row",
    [*catalogue.PARTS, *catalogue.EMBEDS, *catalogue.STICKERS, *catalogue.FLAGS],
    ids=lambda row: f"{row.kind}: {row.sees}",
)
def test_each_part_of_a_message_is_read_as_the_catalogue_says(row):
    incoming = parse_message(in_chat(**row.shape), DIRECT, ME)
    assert with_quoted(incoming.text, incoming.quoted) == row.reads


@pytest.mark.parametrize("row", catalogue.MESSAGES, ids=lambda row: row.kind)
def test_each_type_of_message_is_read_as_the_catalogue_says_as_a_line_of_a_thread(row):
    data = said("", type=discord.MessageType[row.kind].value, mentions=[BOB])
    message = received({**data, **row.shape})
    assert parse_spoken(message, ME).text == row.reads
    is_said = row.kind in ("default", "reply")
    assert (parse_message(message, DIRECT, ME) is not None) == is_said


def test_a_type_of_message_of_tomorrow_is_named_with_its_words():
    line = parse_spoken(received(said("what is this?", type=99)), ME)
    assert line.text == "[a message of type 99 that I cannot read]\nwhat is this?"


@pytest.mark.parametrize(
    ("rows", "library"),
    [
        (catalogue.COMPONENTS, {kind.name for kind in discord.ComponentType}),
        (catalogue.MESSAGES, {kind.name for kind in discord.MessageType}),
        (catalogue.STICKERS, {kind.name for kind in discord.StickerFormatType}),
        (catalogue.FLAGS, {*discord.MessageFlags.VALID_FLAGS}),
        (catalogue.EMBEDS, {*Embed.__annotations__}),
        (catalogue.PARTS, {part for part in discord.Message.__slots__ if not part.startswith("_")}),
    ],
    ids=["components", "messages", "stickers", "flags", "embeds", "parts"],
)
def test_the_catalogue_has_every_kind_that_the_library_has(rows, library):
    assert {row.kind for row in rows} == library


def test_the_readers_have_every_kind_that_the_library_has():
    assert set(KINDS) == set(discord.ComponentType)
    assert {*SPOKEN_TYPES, *COMMAND_TYPES, *NOTICES} == set(discord.MessageType)
    assert [kind.name for kind in discord.MessageReferenceType] == ["default", "forward"]
    assert [kind.name for kind in discord.PollLayoutType] == ["default"]


def test_a_message_of_components_is_read_as_the_target_of_a_reply_and_as_an_earlier_line():
    shape = {
        "components": [{"type": 17, "components": [catalogue.TEXT, {"type": 10, "content": "by Ann"}]}],
        **V2,
    }
    target = said("", OTHER_BOT, id_="1174000000000000000", **shape)
    message = received(replying(target, "is that right?"))
    quoted = "> In reply to Alarms:\n> deploy of **api**\n> by Ann"
    assert text_and_quoted(message, ME) == ("is that right?", quoted)
    assert parse_spoken(received(said("", OTHER_BOT, **shape)), ME).text == "deploy of **api**\nby Ann"


def test_components_that_nest_too_deep_are_named():
    nested = {"type": 10, "content": "deep"}
    for _ in range(DEEPEST + 1):
        nested = {"type": 17, "components": [nested]}
    assert "that I cannot read" in text_and_quoted(in_chat(components=[nested], **V2), ME)[0]


def test_so_many_components_and_files_are_bounded_and_said():
    many = [{"type": 10, "content": f"line {number}"} for number in range(5_000)]
    text, _ = text_and_quoted(in_chat(components=many, **V2), ME)
    assert text.endswith("line 99\n[4900 more components, which I leave out]")
    files = parse_message(in_chat(attachments=[file(id_=str(n)) for n in range(1, 201)]), DIRECT, ME).files
    assert len(files) == 200, "how many are fetched, and what is said of the others, is the bot's own rule"


def test_an_odd_part_takes_no_other_with_it_and_is_said():
    odd = {"type": "rich", "timestamp": "not a time"}
    incoming = parse_message(in_chat(content="hi", embeds=[odd], attachments=[file()]), DIRECT, ME)
    assert incoming.text == "hi\n[the embeds of a message, which I cannot read]"
    assert [one.name for one in incoming.files] == ["notes.txt"]


FIELDS = [
    "accessory",
    "answers",
    "answer_id",
    "author",
    "component",
    "components",
    "content",
    "custom_id",
    "description",
    "emoji",
    "expiry",
    "fields",
    "file",
    "footer",
    "id",
    "image",
    "items",
    "label",
    "media",
    "message",
    "name",
    "options",
    "placeholder",
    "poll_media",
    "question",
    "results",
    "spoiler",
    "style",
    "text",
    "timestamp",
    "title",
    "type",
    "url",
    "value",
]
LEAVES = st.none() | st.booleans() | st.integers(-1, 22) | st.text("a<@#:1>`\n", max_size=8)
ODD = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=15,
)
EMBED = st.fixed_dictionaries({}, optional=dict.fromkeys(Embed.__annotations__, ODD))
PLACES = ("components", "embeds", "poll", "sticker_items", "message_snapshots", "attachments", "activity")


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(PLACES), ODD | st.lists(ODD | EMBED, max_size=2), min_size=1, max_size=3)
)
def test_no_shape_is_a_surprise_and_the_text_is_always_read(shape):
    message = in_chat(**{"content": "the text", **shape})
    incoming = parse_message(message, DIRECT, ME)
    assert incoming.text.startswith("the text")
    assert "the text" in parse_spoken(message, ME).text
    without_text = in_chat(**shape)
    parse_message(without_text, DIRECT, ME)
    parse_spoken(without_text, ME)
