import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from transports.base.text import split, without_controls
from transports.slack.live.draft_content import utf8_size

LINES = st.sampled_from(
    [
        "a word",
        "Two sentences. Here they are, longer than the other lines of this text!",
        "",
        "  indented",
        "```",
        "```python",
        "~~~",
        "````md",
        "> ```js",
        "> ```",
        "> quoted",
        "- item",
        "- ```",
        "   ```",
        "| a | b |",
        "|---|---|",
        "| 1 | 2 |",
        "`" * 30,
        "x" * 90,
        "日本語の文。" * 12,
        "👩‍👩‍👧‍👦" * 9,
        "e\u0301" * 40,
        "\ud83d\ude00" * 20,
    ]
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join) | st.text(max_size=300)
SIZES = st.sampled_from([len, utf8_size])


LONGEST_FENCE = 12  # a longer opener may be taken as words where it would fill a quarter of the limit


def balanced(part):
    """Read the fences of a part with a reader of its own: simple ones, at any depth of quotes."""
    fence = None
    for line in part.split("\n"):
        quotes = len(re.match(r"(?:[ \t]*>)*", line)[0].replace(" ", "").replace("\t", ""))
        if fence is not None:
            mark, depth = fence
            if quotes < depth:
                fence = None
            elif re.fullmatch(
                rf"[ \t\r]*{mark[0]}{{{len(mark)},}}[ \t\r]*", re.sub(r"^[ \t]*>" * depth, "", line)
            ):
                fence = None
                continue
            else:
                continue
        opener = re.fullmatch(r"(?:>|[ \t]|[-*+][ \t]|\d{1,9}[.)][ \t])*(```+|~~~+)(.*)", line)
        if opener and not (opener[1][0] == "`" and "`" in opener[2]) and len(line) <= LONGEST_FENCE:
            fence = (opener[1], quotes)
    return fence is None or fence[1] > 0  # a quote's end ends its fence: here the text's own does


@given(TEXTS, st.integers(70, 200), SIZES)
@settings(max_examples=400, deadline=None)
def test_every_part_is_within_the_limit_with_its_fences_closed(text, limit, size):
    for part in split(text, limit, size=size):
        assert size(part) <= limit
        assert part.strip()
        assert balanced(part)


def words(text):
    """Everything a person reads: no white space, no marks that a border may add."""
    lines = [line for line in text.split("\n") if not re.fullmatch(r"[>\-\s]*(```+|~~~+)[a-z]*\s*", line)]
    return re.sub(r"\s", "", "".join(line for line in lines if "|" not in line))


@given(TEXTS.filter(lambda text: "~" * 3 not in text), st.integers(70, 200), SIZES)
@settings(max_examples=400, deadline=None)
def test_no_word_is_lost_or_said_twice(text, limit, size):
    assert words("\n".join(split(text, limit, size=size))) == words(text)


@given(st.text(alphabet="ab `~>|-\n\u0301\u200d👩\ud83d\ude00.", max_size=120), st.integers(1, 40), SIZES)
@example("`" * 100, 10, len)
@example("```" + "x" * 50 + "\ny\n```", 10, len)
def test_it_ends_and_keeps_everything_at_limits_too_small_for_a_fence(text, limit, size):
    parts = split(text, limit, size=size)
    assert all(size(part) <= max(limit, 4) for part in parts)
    if limit < 24:  # no fence or header is repeated
        assert re.sub(r"\s", "", "".join(parts)) == re.sub(r"\s", "", text)


def test_a_short_text_is_one_part_and_a_blank_one_is_none():
    assert split("hello\n\nworld", 100) == ["hello\n\nworld"]
    assert split("", 100) == []
    assert split(" \n\t\n", 100) == []


def test_a_paragraph_is_preferred_to_a_line_to_a_sentence_to_a_word():
    assert split("aaaa aaaa\n\nbbbb\ncccc dddd", 20) == ["aaaa aaaa", "bbbb\ncccc dddd"]
    assert split("aaaa aaaa\nbbbb bbbb cccc", 18) == ["aaaa aaaa", "bbbb bbbb cccc"]
    assert split("One is it. Two is it too", 14) == ["One is it.", "Two is it too"]
    assert split("aaaa bbbb cccc", 11) == ["aaaa bbbb", "cccc"]
    assert split("abcdefghij", 4) == ["abcd", "efgh", "ij"]


def test_a_fence_is_closed_and_opened_again_with_its_own_opener():
    code = "\n".join(f"line {number}" for number in range(6))
    parts = split(f"See:\n````python title=x\n{code}\n````\nend", 110)
    assert len(parts) == 1
    code = "\n".join(f"line {number}" for number in range(30))
    parts = split(f"See:\n````python title=x\n{code}\n````\nend", 110)
    assert all(part.startswith("````python title=x\nline") for part in parts[1:])
    assert all(part.endswith("\n````") for part in parts[:-1])
    assert parts[-1].endswith("\n````\nend")


def test_a_fence_in_a_quote_stays_in_the_quote():
    text = "> ```js\n" + "\n".join(f"> line {number}" for number in range(20)) + "\n> ```"
    for part in split(text, 80):
        assert part.startswith("> ```js\n> line")
        assert part.endswith("\n> ```")
        assert all(line.startswith("> ") for line in part.split("\n"))


def test_a_fence_in_a_list_is_closed_where_the_item_is_and_opened_at_the_margin():
    text = "1. Do\n   ```sh\n" + "\n".join(f"   line {number}" for number in range(20)) + "\n   ```"
    first, *rest = split(text, 90)
    assert first.endswith("\n   ```")
    assert all(part.startswith("```sh\n   line") for part in rest)


def test_the_end_of_a_fence_is_not_left_for_a_part_of_its_own():
    expected = ["```\n" + "a" * 20 + "\n" + "b" * 20 + "\n```", "more words"]
    assert split("```\n" + "a" * 20 + "\n" + "b" * 20 + "\n```\nmore words", 50) == expected


def test_a_part_that_starts_inside_a_table_has_its_header():
    rows = "\n".join(f"| {number} | value |" for number in range(20))
    parts = split(f"Before\n\n| n | what |\n|---|------|\n{rows}\n\nafter", 120)
    assert all(part.startswith("| n | what |\n|---|------|\n| ") for part in parts[1:])
    assert re.findall(r"\| (\d+) \|", "\n".join(parts)) == [str(number) for number in range(20)]
    assert parts[-1].endswith("\n\nafter")


def test_a_header_is_never_parted_from_its_delimiter():
    text = "x" * 30 + "\n| n | what |\n|---|------|\n| 1 | 2 |"
    assert split(text, 50) == ["x" * 30, "| n | what |\n|---|------|\n| 1 | 2 |"]


@pytest.mark.parametrize(
    "cluster", ["👩‍👩‍👧‍👦", "e\u0301\u0323", "👍🏽", "🇩🇪", "\ud83d\ude00", "🏴\U000e0067\U000e007f"]
)
def test_what_a_person_sees_as_one_character_is_not_cut(cluster):
    for limit in range(len(cluster), 25):
        assert all(len(part) % len(cluster) == 0 for part in split(cluster * 12, limit))


def test_a_tower_of_accents_ends():
    assert "".join(split("e" + "\u0301" * 1000, 100)) == "e" + "\u0301" * 1000


def test_bytes_are_counted_where_bytes_are_the_limit():
    parts = split("語" * 100, 100, size=utf8_size)
    assert [len(part) for part in parts] == [33, 33, 33, 1]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2_000_000,
        "```\n" + "x" * 2_000_000,
        "`" * 2_000_000,
        "> " * 1_000_000,
        "|-" * 1_000_000,
        "\n" * 2_000_000,
        "> ```\n" * 300_000,
        "| a |\n|---|\n" * 150_000,
        "- " * 1_000_000,
        "1. ~~~\n" * 250_000,
    ],
    ids=["line", "code", "ticks", "quotes", "pipes", "blank", "fences", "tables", "lists", "tildes"],
)
def test_two_million_characters_take_seconds_at_most(text):
    began = time.process_time()
    assert all(len(part) <= 3_000 for part in split(text, 3_000))
    assert time.process_time() - began < 10


def test_no_control_is_left_but_newline_and_tab():
    printable = "".join(map(chr, range(0x20, 0x7F)))
    assert without_controls("".join(map(chr, range(0xA1)))) == f"\t\n{printable}\xa0"
