import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transports.discord.markdown.render import MAX_CONTENT, live_parts, parts, rendered, utf16_size

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


def words(text):
    """All that a person reads: no white space, no fences, which a border may repeat."""
    return re.sub(r"\s", "", re.sub(r"(?m)^[> \d.\-]*```[\w+#.-]*[ \t]*$", "", text).replace("> ", ""))


@given(TEXTS)
@settings(max_examples=100, deadline=None)
@example("no table | here\n|---|---|---|\n" + "x" * 3_000)
def test_no_word_is_lost_or_said_twice(text):
    whole = words(rendered(text))
    if re.search(r"\w", whole):
        assert words("\n".join(parts(text))) == whole


@given(TEXTS, st.integers(150, 400))
@settings(max_examples=50, deadline=None)
def test_a_smaller_limit_holds_too(text, limit):
    assert all(utf16_size(part) <= limit for part in parts(text, limit))


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


def test_a_fence_goes_on_in_the_next_part_with_its_language():
    code = "\n".join(f"line {number}" for number in range(500))
    shown = parts(f"See:\n```python title=x\n{code}\n```\nend")
    assert len(shown) == 3
    assert all(part.startswith("```python\nline") for part in shown[1:])
    assert all(part.endswith("\n```") for part in shown[:-1])
    assert re.findall(r"line (\d+)", "".join(shown)) == [str(number) for number in range(500)]


def test_a_paragraph_is_cut_after_a_sentence():
    shown = parts("This is a sentence of a long text. " * 100)
    assert all(part.startswith("This") and part.endswith("text.") for part in shown)
