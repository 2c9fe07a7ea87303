"""What people see in a Slack message, the model reads: the catalogue, and how the parts of a message come together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.models.blocks import Block, BlockElement
from slack_sdk.models.blocks.basic_components import RawNumberObject, RawTextObject, TextObject

from docs.generate.reading import slack as catalogue
from transports.slack.events.blocks import DEEPEST, KINDS, MOST_CELLS, MOST_PARTS, words_of
from transports.slack.events.decode import decode
from transports.slack.events.message_words import MOST_ATTACHMENTS
from transports.slack.events.parse_message import LONGEST_TEXT, Me, text_of

ROWS = [*catalogue.BLOCKS, *catalogue.TEXTS, *catalogue.ELEMENTS, *catalogue.RICH_TEXT]
NAMES = {"U2": "Ann", "C2": "general"}


def read(*blocks):
    return decode(words_of([*blocks], set()), NAMES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind}: {row.sees}")
def test_each_kind_of_the_catalogue_is_read_as_it_says(row):
    assert read({"type": row.kind, **row.shape}) == row.reads
    assert row.reads or row.why, "nothing without a reason"


def test_the_catalogue_has_every_kind_that_the_reader_knows_and_the_sdk_has():
    rows = {row.kind for row in ROWS}
    assert rows == set(KINDS)
    assert _kinds_of(Block, BlockElement, TextObject, RawTextObject, RawNumberObject) <= rows


def _kinds_of(*classes):
    """Return the kinds of these classes of the SDK and of all classes below them."""
    found = {kind for one in classes if isinstance(kind := getattr(one, "type", None), str)}
    return found.union(*(_kinds_of(*one.__subclasses__()) for one in classes))


# -- a message as a whole --------------------------------------------------------------------------------------

ME = Me("T1", "UBOT", "BBOT", "Threadfast")


def said(text="", **more):
    return text_of({"type": "message", "ts": "1700000100.000200", "user": "U1", "text": text, **more}, ME)


def section(words):
    return {"type": "section", "text": {"type": "mrkdwn", "text": words}}


PASTED = {
    "id": 1,
    "fallback": "[no preview available]",
    "blocks": [
        {
            "type": "table",
            "rows": [
                [{"type": "raw_text", "text": "Price"}],
                [{"type": "raw_number", "value": 980, "text": "980"}],
            ],
        }
    ],
}
READ_PASTED = "| Price |\n| --- |\n| 980 |"
ALERT = {
    "pretext": "A",
    "title": "B",
    "title_link": "https://a.example/b",
    "text": "C",
    "fields": [{"title": "D", "value": "E"}],
    "footer": "G",
    "fallback": "F",
}
FORWARD = {
    "is_share": True,
    "author_name": "Ann",
    "text": "",
    "fallback": "[no preview available]",
    "message_blocks": [{"team": "T1", "message": {"blocks": [section("the *details*")]}}],
}

MESSAGES = {
    "a pasted table": ({"attachments": [PASTED]}, READ_PASTED),
    "words and a pasted table": (
        {"text": "which one is cheaper?", "attachments": [PASTED]},
        f"which one is cheaper?\n{READ_PASTED}",
    ),
    "a table among the blocks": ({"blocks": PASTED["blocks"]}, READ_PASTED),
    "a notification line and the details in blocks": (
        {"text": "Disk almost full", "blocks": [section("/var is at 97 %")]},
        "Disk almost full\n/var is at 97 %",
    ),
    "a notification line that the blocks say too": (
        {"text": "Disk full", "blocks": [section("*Disk full* on db1")]},
        "*Disk full* on db1",
    ),
    "what a person types, which comes twice": (
        {
            "text": "*hi* <https://a.example|a.example>",
            "blocks": [
                catalogue.rich(
                    {"type": "text", "text": "hi ", "style": {"bold": True}},
                    {"type": "link", "url": "https://a.example"},
                )
            ],
        },
        "*hi* a.example (https://a.example)",
    ),
    "an alert in an attachment": ({"attachments": [ALERT]}, "A\nB (https://a.example/b)\nC\nD: E\nG"),
    "a text and an alert": (
        {"text": "look", "attachments": [ALERT]},
        "look\nA\nB (https://a.example/b)\nC\nD: E\nG",
    ),
    "an attachment with a fallback alone": ({"attachments": [{"fallback": "disk full"}]}, "disk full"),
    "an attachment for old apps only": ({"attachments": [{"fallback": "[no preview available]"}]}, ""),
    "a forward with its message's blocks": (
        {"attachments": [FORWARD]},
        "> Forwarded message from Ann:\n> the *details*",
    ),
    "a forward of nothing readable": (
        {"attachments": [{"is_share": True, "fallback": "[no preview available]"}]},
        "> Forwarded message:\n> [a forwarded message that I cannot read]",
    ),
    "a preview of a link": (
        {"text": "https://a.example", "attachments": [{"from_url": "https://a.example", "text": "Buy"}]},
        "https://a.example",
    ),
    "a kind of tomorrow": (
        {"text": "see", "blocks": [{"type": "hologram"}]},
        "see\n[a block of type hologram that I cannot read]",
    ),
    "a kind with an odd name": (
        {"blocks": [{"type": "<@U2>"}]},
        "[a block of an unknown type that I cannot read]",
    ),
    "a short word that is part of a longer one": (
        {"text": "no", "blocks": [section("nothing")]},
        "no\nnothing",
    ),
    "a sign beside blocks": ({"text": "?!", "blocks": [section("nothing")]}, "?!\nnothing"),
}


@pytest.mark.parametrize(("message", "words"), MESSAGES.values(), ids=MESSAGES)
def test_all_words_of_a_message_are_read_once_wherever_they_stand(message, words):
    assert said(**message) == words


def test_what_is_too_much_or_too_deep_is_counted_or_named():
    rows = [[catalogue.cell("x")] * 10] * (MOST_CELLS // 10 + 7)
    assert read({"type": "table", "rows": rows}).endswith("| x |\n[7 more rows are not shown]")
    many = [{"type": "text", "text": "x"}] * (MOST_PARTS + 3)
    assert read({"type": "rich_text_section", "elements": many}).endswith("x[3 more are not shown]")
    nested = {"type": "header", "text": "deep"}
    for _ in range(DEEPEST):
        nested = {"type": "carousel", "elements": [nested]}
    assert read(nested) == "[more blocks inside blocks that I cannot read]"
    attachments = [{"text": f"part {number}"} for number in range(MOST_ATTACHMENTS + 5)]
    assert said("hi", attachments=attachments).endswith("[5 more attachments are not shown]")
    assert said("x" * (LONGEST_TEXT + 9)).endswith("x\n[9 more characters are not shown]")


def test_lists_in_lists_without_end_are_read_to_a_depth():
    nested = []
    for _ in range(400):
        nested = [nested]
    assert "cannot read" in said("", blocks=[{"type": "header", "text": nested}])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "text",
                        "elements",
                        "rows",
                        "fields",
                        "label",
                        "url",
                        "options",
                        "chart",
                        "series",
                        "data",
                    ]
                ),
                inner | st.sampled_from(sorted(KINDS)),
            )
        ),
    )
)
def test_no_shape_of_blocks_is_too_odd_to_read(value):
    words_of(value, set())
    said("hi", blocks=value, attachments=value)
