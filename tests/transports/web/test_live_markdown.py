"""Markdown that grows: a page that applies the changes shows what the whole text would show."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.web.patient import apply_change
from transports.web.live_markdown import LONGEST_BLOCK, LiveMarkdown
from transports.web.markdown import LONGEST, blocks, tree

BLOCKS = (
    "Some *words* and `code`, more\nin a second line.",
    "# A heading",
    "## Below it",
    "- a\n- b\n  - c\n\n  more of b\n- [ ] d",
    "1. one\n2. two",
    "> quoted\n> > twice",
    "```py\ndef f():\n\n    return 1\n```",
    "| a | n |\n|---|--:|\n| b | 1 |\n| c | 2 | 3 |",
    "$$\na\n+ b\n$$",
    "It costs $5, and $x^2$ is a formula.",
    "---",
    "[a link](https://a.example) https://b.example/x_y_z",
    "Words\n===",
    "\u05e9\u05dc\u05d5\u05dd and Latin",
)


def grown(text, sizes):
    """Return what a page shows that was told of the text in pieces, and what the text has at its end."""
    live, page = LiveMarkdown(), []
    at = 0
    while at < len(text):
        size = next(sizes)
        live.grow(text[at : at + size])
        at += size
        for change in json.loads(json.dumps(live.changes())):
            apply_change(page, change)
        assert page == live.nodes
    return page


def pieces(*sizes):
    while True:
        yield from sizes


@given(st.lists(st.sampled_from(BLOCKS), max_size=8), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_a_text_in_pieces_is_the_whole_text(parts, sizes):
    text = "\n\n".join(parts)
    assert grown(text, pieces(*sizes)) == tree(text)


@given(
    st.lists(st.sampled_from([*"ab \n-#>`|*$[]", "\n\n", "```", "|-|-|\n", "    "]), max_size=60).map(
        "".join
    ),
    st.integers(1, 5),
)
def test_whatever_the_text_a_page_shows_what_was_read(text, size):
    grown(text, pieces(size))


def test_a_finished_block_is_not_told_again():
    live = LiveMarkdown()
    live.grow("One.\n\nTwo.\n\n- a\n")
    live.changes()
    live.grow("- b")
    assert live.changes() == [[[2], 1, "", [["li", {}, "b"]]]]
    live.grow("c")
    assert live.changes() == [[[2, 1], 1, "c", []]]
    live.grow("\n\nThree")
    assert live.changes() == [[[], 3, "", [["p", {}, "Three"]]]]
    assert live.changes() == []


def test_a_line_of_a_long_fence_costs_a_line():
    live = LiveMarkdown()
    live.grow("```\n" + "x = 1\n" * 9_000)
    live.changes()
    live.grow("y = 2\n")
    assert live.changes() == [[[0], 1, "y = 2\n", []]]


def test_a_formula_that_is_not_closed_yet_is_shown_as_it_was_written():
    live = LiveMarkdown()
    live.grow("$$\na\n- b\n")
    live.changes()
    assert live.nodes == [["code", {}, "$$\na\n- b"]]
    live.grow("$$")
    live.changes()
    assert live.nodes[0][0] == "math"


@pytest.mark.parametrize("part", ["- an item\n", "word ", "| a | b |\n"])
def test_what_is_read_again_is_bounded_whatever_the_text(part, monkeypatch):
    live, read = LiveMarkdown(), []
    monkeypatch.setattr(
        "transports.web.live_markdown.blocks",
        lambda text, *args, **more: read.append(len(text)) or blocks(text, *args, **more),
    )
    for _ in range(40):
        live.grow(part * (2_000 // len(part)) + "\n" * (part == "word "))
        live.changes()
    assert max(read) <= LONGEST_BLOCK + 4_200


@pytest.mark.parametrize(
    ("line", "size"), [("**bold** words\n", 9_000), ("- an item\n", 2 * LONGEST_BLOCK + 10)]
)
def test_a_text_beyond_all_bounds_goes_on_as_it_was_written(line, size):
    text = line * (2 * LONGEST // len(line))
    assert grown(text, pieces(size)) == tree(text)
