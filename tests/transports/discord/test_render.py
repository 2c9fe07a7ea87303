"""What a model's text becomes in Discord. The golden files hold texts and, beside them, all that we make of them.

``UPDATE_GOLDEN=1`` writes them anew; read every change as the person in Discord would. A zero-width space is shown
as ``⟨200b⟩``, white space at a line's end as dots.
"""

import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.transports.golden import golden
from transports.discord.markdown.render import (
    MAX_NOTE,
    TABLE_FOLLOWS,
    live_parts,
    note,
    parts,
    rendered,
    utf16_size,
)
from transports.discord.markdown.tables import WIDEST

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.md"))


def visible(text):
    text = text.replace("\u200b", "⟨200b⟩")
    return re.sub(r"(?m)[ \t]+$", lambda found: "·" * len(found[0]), text)


@pytest.mark.parametrize("name", NAMES)
def test_golden(name):
    got = visible(rendered((GOLDEN / f"{name}.md").read_text(encoding="utf-8")))
    assert got == golden(GOLDEN / f"{name}.txt", got)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_rendered_is_not_changed_by_rendering_it_again(name):
    once = rendered((GOLDEN / f"{name}.md").read_text(encoding="utf-8"))
    assert rendered(once) == once


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("__two words__ and __Note__", "**two words** and **Note**"),
        (
            "__init__, __init__.py, x.__foo__, __foo__()",
            r"\_\_init\_\_, \_\_init\_\_.py, x.\_\_foo\_\_, \_\_foo\_\_()",
        ),
        ("my__dunder__x snake_case _it_", r"my\_\_dunder\_\_x snake_case *it*"),
        ("a || b || c", r"a \|\| b \|\| c"),
        ("`a || b` and `__x__`", "`a || b` and `__x__`"),
        ("-# small", r"\-# small"),
        ("a\n-# small", "a\n\\-# small"),
        (">>> all the rest\n\nof it", "> > > all the rest\n\nof it"),
        (">close\n>\n>d", "> close\n> \n> d"),
        ("#### Four ####", "**Four**"),
        ("##### **Five** `x`", "**Five `x`**"),
        ("  ## Two ##", "  ## Two"),
        ("#", ""),
        ("#hashtag #5", "#hashtag #5"),
        ("- [ ] a\n- [X] b\n- [y] c", "- ☐ a\n- ☑ b\n- [y] c"),
        ("+ a\n  + b\n* c\n1. d", "- a\n  - b\n* c\n1. d"),
        ("a\n---\nb", f"a\n{'─' * 12}\nb"),
        ("2 ** 3 ** 4", r"2 \*\* 3 \*\* 4"),
        ("x**2 + y**2", r"x\*\*2 + y\*\*2"),
        ("2*3*4 and *it* and ***both***", r"2\*3\*4 and *it* and ***both***"),
        ("**重要：**内容", "**重要：**内容"),
        ("**bold `x ** y` on** ~~gone~~", "**bold `x ** y` on** ~~gone~~"),
        ("&lt;b&gt; &amp; &#42;x&#42; &nbsp;", r"\<b\> \& \*x\*" + " \u00a0"),
        ("<b>x</b> <!-- c --> <details>", "<b>x</b> <!-- c --> <details>"),
        (r"\(a_1\) \[b\] $c_d$ C:\Users\x", r"\(a_1\) \[b\] $c_d$ C:\Users\x"),
        ("a ` b", r"a \` b"),
        ("hi @everyone, @here", "hi @\u200beveryone, @\u200bhere"),
        ("`@everyone`\n```\n@here <@1>\n```", "`@everyone`\n```\n@here <@1>\n```"),
        (r"\@everyone @&#101;veryone", "@\u200beveryone @\u200beveryone"),
        ("me@hereford.org <@12> <#3> <t:17:R>", "me@hereford.org <@12> <#3> <t:17:R>"),
        ("~~~py\nx\n~~~", "```py\nx\n```"),
        ("```py title=a\nx\n```", "```py\nx\n```"),
        ("```\n```", "```\n \n```"),
        ("```\na\n\n  b  \n```", "```\na\n\n  b  \n```"),
        ("```js\nopen", "```js\nopen\n```"),
        ("see: ```py\nx\n```\nend", "see:\n```py\nx\n```\nend"),
        ("a\x00b\ud83d\ude00\ud83d\u202ec\r\nd", "ab😀c\nd"),
    ],
)
def test_small_things_come_out_as_meant(text, shown):
    assert rendered(text) == shown


@pytest.mark.parametrize(
    "target", ["https://evil.com/x", "https://good.com@evil.com/", "https://good.com.evil.com"]
)
@pytest.mark.parametrize(
    "label", ["https://good.com", "good.com", "see **good.com** now", "good&#46;com", "good\u200b.com"]
)
def test_words_that_name_another_host_do_not_hide_where_a_link_leads(label, target):
    shown = rendered(f"[{label}]({target})")
    assert re.search(r"\((?:good\.com\.)?evil\.com\)$|\(<https://\S*evil\.com\S*>\)$", shown)


def test_a_link_keeps_its_words_and_every_address_is_in_brackets():
    assert rendered("[a **b**](https://x.y/(z) 'title')") == "[a **b**](<https://x.y/%28z%29>)"
    assert rendered("see https://x.y/a__b_*, ok") == "see <https://x.y/a__b>_*, ok"
    assert rendered("![alt](https://x.y/p.png)") == "[alt](<https://x.y/p.png>)"
    assert rendered("[x](docs/a.md) [y](mailto:a@b.c)") == "x (`docs/a.md`) y (`a@b.c`)"


def test_code_that_is_copied_is_what_was_written():
    code = "#include <stdio.h>\nif (a || __x__) {\n\tx <<= 2;  \n\n  } // **z** [x](https://y.z) |a|b|\n|--|--|\n# no\n> no\n"
    assert rendered(f"```cpp\n{code}```") == f"```cpp\n{code}```"
    assert rendered("`a < b`, ``Vec<`T`>`` and `x && __y__`") == "`a < b`, ``Vec<`T`>`` and `x && __y__`"


def test_the_columns_of_a_table_stand_below_each_other():
    shown = rendered(
        "| a | 数据 | e\u0301 |\n|---|--:|:-:|\n| 日本 | 1 | x |\n| 👩‍👩‍👧 | 22 | longer |"
    ).split("\n")
    assert shown == [
        "```",
        "a     数据    e\u0301",
        "----  ----  ------",
        "日本     1    x",
        "👩‍👩‍👧      22  longer",
        "```",
    ]


def test_a_table_that_is_too_wide_is_a_list_with_live_links():
    wide = "w" * WIDEST
    text = f"| n | what | more |\n|---|---|---|\n| **one** | {wide} | |\n| | [x](https://y.z) | `c` |"
    assert (
        rendered(text)
        == f"- n: **one**\n  - what: {wide}\n- n: …\n  - what: [x](<https://y.z>)\n  - more: `c`"
    )


def test_a_long_table_repeats_its_header_in_every_part():
    rows = "\n".join(f"| {number} | value |" for number in range(400))
    shown = parts(f"| n | what |\n|---|---|\n{rows}")
    assert len(shown) > 2
    assert all(part.startswith("```\nn    what\n---  -----\n") and part.endswith("\n```") for part in shown)
    assert [int(found) for part in shown for found in re.findall(r"(?m)^(\d+) +value$", part)] == list(
        range(400)
    )


PIECES = [
    "Some **bold** words, `code || more` and a_b.",
    "## A heading",
    "- a\n- b\n  - c",
    "```py\nx = 1\n\ny = 2\n```",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |",
    "> quoted\n> more",
    "a | b, and [x](https://y.z)",
    "---",
    "word " * 120,
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=25))
@settings(max_examples=60, deadline=None)
def test_what_stands_of_a_text_stays_when_a_block_is_added(pieces):
    before, after = parts("\n\n".join(pieces[:-1])), parts("\n\n".join(pieces))
    assert after[: len(before) - 1] == before[:-1]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_a_growing_text_never_shows_a_table_before_it_is_complete_or_a_fence_that_is_open(pieces):
    text = "\n\n".join(pieces)
    for end in range(0, len(text), 7):
        for part in live_parts(text[:end]):
            assert part.count("```") % 2 == 0
            assert not re.search(r"(?m)^\|", part)
    assert live_parts(text + "\n\nend.") == parts(text + "\n\nend.")


def test_a_table_that_grows_is_announced_and_shown_when_it_ends():
    text = "Here:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    for end in range(text.index("|") + 1, len(text) + 1):
        assert live_parts(text[:end]) == [f"Here:\n\n{TABLE_FOLLOWS}"]
    assert live_parts(f"{text}\nx") == ["Here:\n\n```\na  b\n-  -\n1  2\n```\n\nx"]


@pytest.mark.parametrize("last", ["-", "---", "#", "```", "```py", "**", "1.", "> -", "`"])
def test_a_last_line_that_can_still_be_anything_is_not_shown_yet(last):
    assert live_parts(f"words\n{last}") == ["words"]


def test_a_note_is_one_line_in_which_nothing_is_live():
    assert note("reading a_b.md\n||x|| `y` [z](https://w.v) @here <@1>") == (
        r"-# reading a\_b.md \|\|x\|\| \`y\` \[z\](<https://w.v)> " "@\u200bhere <@1>"
    )
    assert note(" ") == "-# …"
    assert utf16_size(note("__ " * 2_000)) <= MAX_NOTE
    assert "\n" not in note("a. " * 2_000)


TOKENS = (
    "` `` ``` ~~~ ```` \n > - 1. < ! @ here everyone [ ] ( ) https:// evil.com ** * __ _ || | ~~ 日 \\ # #### -# >>> : "
    "&lt; &#42; ```py\n |---| |-|-|\n + \t \u200b \u202e \ud83d \x00 init [a](https://x.y) ![i](b)"
)
NASTY = TOKENS.split(" ")
TEXTS = st.lists(st.sampled_from([*NASTY, " ", "\n\n"]), max_size=30).map("".join) | st.text(max_size=80)


@given(TEXTS)
@settings(max_examples=300, deadline=None)
@example("__`_")
@example("@here__")
def test_nothing_of_a_nasty_text_calls_everyone_hides_underlines_or_fails(text):
    shown = rendered(text)
    live_parts(text)
    prose = re.sub(r"(?s)```.*?```|\\.|(`+)(?!`).*?(?<!`)\1(?!`)|<https?://[^>]*>", "\0", shown)
    assert not re.search(r"@(?:everyone|here)(?![A-Za-z0-9])", prose)
    assert "||" not in prose
    assert "__" not in prose
    assert not re.search(r"(?m)^[ >]*>>>|^-#", prose)
    assert not re.search("[\ud800-\udfff\x00\u202e]", shown)
    shown.encode()


UNITS = "[|![|[![a](b|`|**|*_|<https://|> |\n```\n> |x ```py\n|日本**「|https://a.b/?("


@pytest.mark.parametrize("unit", [*UNITS.split("|"), "a|b\n-|-\n", "| ", "`a|", "|a|b\n"])
def test_two_hundred_thousand_characters_take_seconds_at_most(unit):
    began = time.process_time()
    parts(unit * (200_000 // len(unit)))
    assert time.process_time() - began < 15


def test_a_paragraph_of_many_lines_is_what_was_said_word_for_word():
    said = "\n".join(f"line {number} of the long answer." for number in range(200))
    assert rendered(said) == said
