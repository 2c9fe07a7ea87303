"""What people see in a Slack message, the model reads: the catalogue, and how the parts of a message come together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.models.attachments import Attachment, AttachmentField, BlockAttachment, InteractiveAttachment
from slack_sdk.models.blocks import Block, BlockElement
from slack_sdk.models.blocks.basic_components import RawNumberObject, RawTextObject, TextObject

from docs.generate.reading import slack as catalogue
from threads.model import with_quoted
from transports.slack.events.blocks import DEEPEST, KINDS, MOST_CELLS, MOST_PARTS, words_of
from transports.slack.events.decode import decode
from transports.slack.events.downloads import REASONS
from transports.slack.events.message_words import MOST_ATTACHMENTS, own_words
from transports.slack.events.parse_message import (
    LONGEST_TEXT,
    MODES,
    NO_DOWNLOAD,
    NOTED,
    NOTHING_KNOWN,
    SAID,
    UNSEEN,
    Known,
    Me,
    parse_message,
    spoken,
    text_and_quoted,
    wanted,
)

ROWS = [*catalogue.BLOCKS, *catalogue.TEXTS, *catalogue.ELEMENTS, *catalogue.RICH_TEXT]
NAMES = {"U2": "Ann", "C2": "general", "S1": "ops"}
ME = Me("T1", "UBOT", "BBOT", "Threadfast")


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


@pytest.mark.parametrize("row", catalogue.ATTACHMENTS, ids=lambda row: row.kind)
def test_each_field_of_an_attachment_is_read_as_the_catalogue_says(row):
    assert said("", attachments=[row.shape], known=Known(NAMES)) == row.reads
    assert row.reads or row.why, "nothing without a reason"


def test_the_catalogue_has_every_field_of_an_attachment_that_the_sdk_has():
    built = [
        InteractiveAttachment(text="a", fallback="b", callback_id="c", actions=[]),
        BlockAttachment(blocks=[]),
        AttachmentField(),
    ]
    fields = set(Attachment.attributes).union(*(one.attributes for one in built), {"actions"})
    assert fields - {"value"} <= {row.kind for row in catalogue.ATTACHMENTS}
    assert {"button", "select"} <= set(KINDS), "what stands in actions"


@pytest.mark.parametrize(
    "row", [*catalogue.SAID, *catalogue.NOTED, *catalogue.UNSEEN], ids=lambda row: row.kind or "none"
)
def test_each_subtype_of_a_message_is_read_as_the_catalogue_says(row):
    message = {"type": "message", "ts": "1.2", "user": "U1", "subtype": row.kind, **row.shape}
    line = spoken(message, ME, Known(NAMES))
    assert (line.text if line else "") == row.reads
    mine = Me("T1", "UBOT", "BBOT", bots=frozenset({"B2"}))
    incoming = parse_message(message, "D1", mine, Known(NAMES), direct=True)
    assert (incoming.text if incoming else None) == (row.reads if row in catalogue.SAID else None)
    assert row.reads or row.why, "nothing without a reason"


def test_the_catalogue_has_every_subtype_and_mode_that_the_reader_knows_and_a_new_one_is_said_or_named():
    assert {row.kind for row in catalogue.SAID} == SAID | {"bot_message"}
    assert {row.kind for row in catalogue.NOTED} == NOTED
    assert {row.kind for row in catalogue.UNSEEN} == UNSEEN
    assert {row.kind for row in catalogue.FILES} == MODES - {""}
    assert {*REASONS, "file_access"} == NO_DOWNLOAD
    new = {"type": "message", "ts": "1.2", "user": "U1", "subtype": "voice_of_tomorrow"}
    assert parse_message({**new, "text": "hi"}, "D1", ME, direct=True).text == "hi"
    assert spoken(new, ME).text == "[a message of type voice_of_tomorrow that I cannot read]"
    found = set()
    list(wanted({**new, "files": [{"id": "F1", "mode": "cube"}], "blocks": [{"type": "hologram"}]}, found))
    assert found == {"voice_of_tomorrow", "cube", "hologram"}, "they are counted"


# -- a message as a whole --------------------------------------------------------------------------------------


def said(text="", known=NOTHING_KNOWN, **more):
    message = {"type": "message", "ts": "1700000100.000200", "user": "U1", "text": text, **more}
    return with_quoted(*text_and_quoted(message, own_words(message), ME, known))


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
    "words and a pasted table": (
        {"text": "which one is cheaper?", "attachments": [PASTED]},
        f"which one is cheaper?\n{READ_PASTED}",
    ),
    "a table among the blocks": ({"blocks": PASTED["blocks"]}, READ_PASTED),
    "a notification line and the details in blocks": (
        {"text": "Disk almost full", "blocks": [section("/var is at 97 %")]},
        "Disk almost full\n/var is at 97 %",
    ),
    "blocks without a text, for which Slack puts words of its own": (
        {"text": "This content can't be displayed.", "blocks": [section("/var is full")]},
        "/var is full",
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
    "a text and an alert": (
        {"text": "look", "attachments": [ALERT]},
        "look\nA\nB (https://a.example/b)\nC\nD: E\nG",
    ),
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
        "https://a.example\n\n> Preview of https://a.example:\n> Buy",
    ),
    "a kind with an odd name": (
        {"blocks": [{"type": "<@U2>"}]},
        "[a block of an unknown type that I cannot read]",
    ),
    "what a person types with marks that text and blocks write differently": (
        {
            "text": "&gt; a\n&gt; b\n1. one\n    a. two\n<#C2|> at <!date^1720710212^{date}|July 11> "
            ":wave::skin-tone-2: ok",
            "blocks": [
                {
                    "type": "rich_text",
                    "elements": [
                        {"type": "rich_text_quote", "elements": [{"type": "text", "text": "a\nb"}]},
                        *(
                            {
                                "type": "rich_text_list",
                                "style": "ordered",
                                "indent": indent,
                                "elements": [
                                    {
                                        "type": "rich_text_section",
                                        "elements": [{"type": "text", "text": word}],
                                    }
                                ],
                            }
                            for indent, word in enumerate(("one", "two"))
                        ),
                        {
                            "type": "rich_text_section",
                            "elements": [
                                {"type": "channel", "channel_id": "C2"},
                                {"type": "text", "text": " at "},
                                {
                                    "type": "date",
                                    "timestamp": 1720710212,
                                    "format": "{date}",
                                    "fallback": "July 11",
                                },
                                {"type": "text", "text": " "},
                                {"type": "emoji", "name": "wave", "skin_tone": 2},
                                {"type": "text", "text": " ok"},
                            ],
                        },
                    ],
                }
            ],
        },
        "> a\n> b\n1. one\n    a. two\n#a-channel (C2) at July 11 :wave::skin-tone-2: ok",
    ),
    "a label beside an address that stands elsewhere": (
        {"text": "https://a.example/x", "blocks": [section("<https://a.example/x|the report>")]},
        "the report (https://a.example/x)",
    ),
    "an address with marks of its own": (
        {"blocks": [catalogue.rich({"type": "link", "url": "https://a.example/?q=a|b>c&d", "text": "x"})]},
        "x (https://a.example/?q=a%7Cb%3Ec&d)",
    ),
    "a forward in a forward": (
        {
            "attachments": [
                {
                    "is_share": True,
                    "message_blocks": [
                        {"message": {"text": "see", "attachments": [{**FORWARD, "author_name": "Eve"}]}}
                    ],
                }
            ]
        },
        "> Forwarded message:\n> see\n> Forwarded message from Eve:\n> the *details*",
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


# -- what a person types, which Slack sends as text and as blocks -------------------------------------------------

TYPED = st.text(st.sampled_from("ab9 <>&*_~`é漢😀.!?'-"), min_size=1, max_size=12).filter(
    lambda text: text.strip(" >*_~`-") != ""
)
STYLES = {"bold": "*", "italic": "_", "strike": "~", "code": "`"}


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@st.composite
def styled(draw):
    text, style = draw(TYPED), draw(st.sampled_from(["", *STYLES]))
    mark = STYLES.get(style, "")
    element = {"type": "text", "text": text} | ({"style": {style: True}} if style else {})
    return element, f"{mark}{escaped(text)}{mark}"


INLINE = st.one_of(
    styled(),
    st.just(({"type": "user", "user_id": "U2"}, "<@U2>")),
    st.just(({"type": "channel", "channel_id": "C2"}, "<#C2|>")),
    st.just(({"type": "emoji", "name": "wave", "skin_tone": 3}, ":wave::skin-tone-3:")),
    st.just(({"type": "broadcast", "range": "here"}, "<!here>")),
    st.just(({"type": "link", "url": "https://a.example/?a=1&b=2"}, "<https://a.example/?a=1&amp;b=2>")),
    st.just(({"type": "link", "url": "https://a.example/x", "text": "docs"}, "<https://a.example/x|docs>")),
)
LINE = st.lists(INLINE, min_size=1, max_size=4)


@st.composite
def typed(draw):
    """Return the elements of a rich text, and the text that Slack makes of them."""
    kind = draw(st.sampled_from(["section", "quote", "preformatted", "bullet", "ordered"]))
    lines = draw(st.lists(LINE, min_size=1, max_size=3))
    texts = ["".join(text for _, text in line) for line in lines]
    elements = [[element for element, _ in line] for line in lines]
    if kind in ("bullet", "ordered"):
        items = [{"type": "rich_text_section", "elements": line} for line in elements]
        marks = ["•"] * len(lines) if kind == "bullet" else [f"{n}." for n in range(1, len(lines) + 1)]
        listed = {"type": "rich_text_list", "style": kind, "elements": items}
        return listed, "\n".join(f"{mark} {text}" for mark, text in zip(marks, texts, strict=True))
    inner = [one for line in elements for one in (*line, {"type": "text", "text": "\n"})][:-1]
    mark = {"quote": "&gt; ", "section": "", "preformatted": ""}[kind]
    text = "\n".join(f"{mark}{text}" for text in texts)
    return {
        "type": f"rich_text_{kind}",
        "elements": inner,
    }, f"```{text}```" if kind == "preformatted" else text


@given(st.lists(typed(), min_size=1, max_size=3))
def test_what_a_person_types_is_read_once_though_slack_sends_it_as_text_and_as_blocks(parts):
    text = "\n".join(text for _, text in parts)
    rich = {"type": "rich_text", "elements": [element for element, _ in parts]}
    both, blocks = said(text, blocks=[rich]), said("", blocks=[rich])
    assert both in (said(text), blocks)
