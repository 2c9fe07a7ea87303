"""A model's text in a quote cannot leave it, nor be anything live."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bot.tools.quote import plain_line, quote

HOSTILE = st.text(st.sampled_from("\\`*_{}[]()<>#+-.!|~:@& \n\t1aw/=\u200b\u202e"), max_size=60) | st.text(
    max_size=60
)


@given(HOSTILE)
def test_it_is_one_quote_of_plain_text_and_code(text):
    tokens = (
        MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(f"above\n\n{quote(text)}\n\nbelow")
    )
    inside = tokens[3:-3]
    assert inside[0].type == "blockquote_open"
    assert inside[-1].type == "blockquote_close"
    kinds = {token.type for token in inside} - {"blockquote_open", "blockquote_close"}
    assert kinds <= {"paragraph_open", "inline", "paragraph_close", "code_block"}
    live = {child.type for token in inside for child in token.children or ()}
    assert live <= {"text", "softbreak", "hardbreak", "code_inline"}


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
def test_every_line_is_behind_the_mark_and_nothing_is_invisible(text):
    lines = quote(text).split("\n")
    assert all(re.match(r">( |\Z)", line) for line in lines)
    assert not re.search("[\u200b\u202e\u2066\u00ad\u2800]", quote(text))


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("Which one?", "> Which one?"),
        ("see https://evil.example/x now", "> see `https://evil.example/x` now"),
        ("<@U1> @everyone", "> \\<\\@U1\\> \\@everyone"),
        ("- a\n1. b", "> \\- a\n> 1\\. b"),
        ("a\u200bb", "> a\\\\u\\{200b\\}b"),
    ],
)
def test_what_a_person_reads_is_what_is_written(text, quoted):
    assert quote(text) == quoted


def test_a_button_has_one_line_with_every_character_visible():
    assert plain_line(" yes\n\u202eno ") == "yes \\u{202e}no"
