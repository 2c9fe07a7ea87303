import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transports.discord.markdown.render import MAX_CONTENT, live_parts, parts, utf16_size

LINES = st.sampled_from(
    [
        "a word",
        "Two sentences. Here they are, longer than the other lines of this text!",
        "",
        "```",
        "```python",
        "```sql title=x",
        "~~~",
        "````md",
        "> ```js",
        "> ```",
        "> quoted",
        "- item __x__ || y",
        "  - nested",
        "1. ```",
        "| a | b |",
        "|---|---|",
        "| 1 | 2 |",
        "x" * 90,
        "x" * 2_500,
        "日本語の文。" * 30,
        "👩‍👩‍👧‍👦" * 30,
        "😀" * 700,
        "@everyone " * 150,
        "word " * 300,
        "def f(): return 1",
        "\ud83d",
    ]
)
TEXTS = st.lists(LINES, max_size=60).map("\n".join) | st.text(max_size=300)


def balanced(part):
    """Read ticks as Discord does: three of them open a block anywhere, and three close it."""
    return part.count("```") % 2 == 0


@given(TEXTS)
@settings(max_examples=100, deadline=None)
@example("```\n" + "😀" * 1_500 + "\n```")
@example("```" + "x" * 1_998)
@example("> ```js\n" + "> let a = 1;\n" * 400)
def test_every_part_is_a_message_that_discord_takes_with_its_fences_closed(text):
    for shown in (parts(text), live_parts(text)):
        assert shown
        for part in shown:
            assert 0 < utf16_size(part) <= MAX_CONTENT
            assert part == part.strip()
            assert balanced(part)


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b", "\u200b \u2060", "```", "\ud83d", "\x00"])
def test_a_text_of_nothing_is_a_sign_and_never_an_empty_message(text):
    for shown in (parts(text), live_parts(text)):
        assert len(shown) == 1
        assert re.search(r"\S", shown[0])


@pytest.mark.parametrize(("char", "units"), [("a", 1), ("é", 1), ("日", 1), ("😀", 2), ("\ud83d", 1)])
def test_a_size_is_counted_in_utf16_units(char, units):
    assert utf16_size(char) == units
    assert utf16_size(char * 7) == 7 * units


def test_a_message_of_exactly_the_limit_is_one_part_and_one_more_unit_makes_two():
    assert parts("x" * MAX_CONTENT) == ["x" * MAX_CONTENT]
    assert [len(part) for part in parts("x" * (MAX_CONTENT + 1))] == [2_000, 1]
    assert [len(part) for part in parts("😀" * 1_001)] == [1_000, 1]
