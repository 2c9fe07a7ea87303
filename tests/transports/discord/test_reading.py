"""What people see in a Discord message, the model reads: the catalogue, through the library's own parsing."""

from __future__ import annotations

import discord
import pytest

from docs.generate.reading import discord as catalogue
from tests.transports.discord.payloads import (
    DIRECT,
    DM,
    ME,
    OTHER_BOT,
    client,
    replying,
    said,
)
from transports.discord.api.payloads import DEEPEST
from transports.discord.api.sdk import read_message
from transports.discord.events.components import KINDS
from transports.discord.events.message_text import text_of
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
    assert text_of(message, ME) == row.reads
    assert row.reads or row.why, "nothing without a reason"


@pytest.mark.parametrize("row", catalogue.PARTS, ids=lambda row: f"{row.kind}: {row.sees}")
def test_each_part_of_a_message_is_read_as_the_catalogue_says(row):
    incoming = parse_message(in_chat(**row.shape), DIRECT, ME)
    assert incoming.text == row.reads


def test_the_catalogue_has_every_type_of_component_that_the_library_has():
    assert {row.kind for row in catalogue.COMPONENTS} == {kind.name for kind in discord.ComponentType}
    assert set(KINDS) == set(discord.ComponentType)


def test_a_message_of_components_is_read_as_the_target_of_a_reply_and_as_an_earlier_line():
    shape = {
        "components": [{"type": 17, "components": [catalogue.TEXT, {"type": 10, "content": "by Ann"}]}],
        **V2,
    }
    target = said("", OTHER_BOT, id_="1174000000000000000", **shape)
    message = received(replying(target, "is that right?"))
    assert text_of(message, ME) == "is that right?\n\n> In reply to Alarms:\n> deploy of **api**\n> by Ann"
    assert parse_spoken(received(said("", OTHER_BOT, **shape)), ME).text == "deploy of **api**\nby Ann"


def test_components_that_nest_too_deep_are_named():
    nested = {"type": 10, "content": "deep"}
    for _ in range(DEEPEST + 1):
        nested = {"type": 17, "components": [nested]}
    assert "that I cannot read" in text_of(in_chat(components=[nested], **V2), ME)
