"""What is drawn as nothing: the tables are Unicode's, approvals hide nothing, and chat keeps its emoji."""

import re
import sys
import unicodedata

import idna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.prompt.memory_lines import clean, visible_text
from bot.extensions.mcp.plain_text import clean as listed
from bot.extensions.shell.sandbox.output_capture import plain as captured
from bot.observe.logs import one_line
from bot.reports.safe_text import plain
from bot.tools.labels import format_arguments
from threads.invisible_text import BLANK, DEFAULT_IGNORABLE, escaped, is_invisible, prose

EVERY = [chr(code) for code in range(sys.maxunicode + 1)]
IGNORABLE = set(re.findall(f"[{DEFAULT_IGNORABLE}]", "".join(EVERY)))
NAMED = re.compile(r"(?:^| )(?:BRAILLE PATTERN BLANK|(?:FULL|HALF) BLANK|SCRIPT FILLER|NULL NOTEHEAD)$")

NOTHING = (
    "\u3164\u2800\uffa0\u115f\u1160\u17b4\u17b5\u034f\ufe00\ufe0f\U000e0100\u200b\u00ad\u2060\U000e0041\u202e"
)
EMOJI = ["❤\ufe0f", "❤\ufe0f\u200d🔥", "👩\u200d👩\u200d👧", "1\ufe0f\u20e3", "☺\ufe0e", "🧔🏽\u200d♂\ufe0f"]
WORDS = ["می\u200cخواهم", "क्\u200dष"]


def ignored_by_uts46(character):
    try:
        return idna.uts46_remap(character, std3_rules=False) == ""
    except idna.IDNAError:
        return False


@pytest.mark.slow
def test_the_table_of_what_is_ignorable_is_unicodes():
    """UTS #46 maps to nothing what is ignorable, is assigned, and does no harm in a name; the rest is of category C."""
    assigned = {character for character in EVERY if unicodedata.category(character)[0] != "C"}
    ignored = {character for character in EVERY if ignored_by_uts46(character)}
    assert ignored - IGNORABLE == set()
    assert (IGNORABLE & assigned) - ignored == set()


def test_all_formats_are_invisible_and_what_is_ignorable_too():
    formats = {c for c in EVERY if unicodedata.category(c) in ("Cf", "Cc", "Cs", "Zl", "Zp")}
    assert all(map(is_invisible, formats | IGNORABLE))


def test_the_table_of_blanks_holds_what_is_named_so():
    named = {character for character in EVERY if NAMED.search(unicodedata.name(character, ""))}
    assert named - set(BLANK) == set()
    assert all(unicodedata.name(c, "") == "" or c in named for c in BLANK), "or newer than this Python"


def test_a_letter_that_is_drawn_is_not_invisible():
    drawn = "aé漢ㄅ한กা🙂❤⠿ \u00a0\u3000\U0001fae8\ue000"
    assert not any(map(is_invisible, drawn))


@pytest.mark.parametrize("hidden", NOTHING)
def test_an_approval_shows_what_is_drawn_as_nothing(hidden):
    shown = format_arguments({"command": f"rm {hidden}x"})
    assert shown == f"rm \\u{{{ord(hidden):x}}}x"
    assert format_arguments({"path": f"a{hidden}", "content": f"{hidden}\nb"}).count("\\u{") == 2


@pytest.mark.parametrize("blank", "\u00a0\u2003\u3000\u1680")
def test_an_approval_shows_a_blank_that_is_no_space(blank):
    assert format_arguments({"command": f"rm{blank}x"}) == f"rm\\u{{{ord(blank):x}}}x"


def test_two_commands_that_look_the_same_are_shown_differently():
    assert escaped("rm ❤") == "rm ❤"
    assert escaped("rm ❤\ufe0f") == "rm ❤\\u{fe0f}"


@given(st.text(), st.text())
def test_what_an_approval_shows_has_nothing_unseen_in_it(one, other):
    shown = escaped(one)
    assert all(c in "\n\t" or (c.isprintable() and not is_invisible(c)) for c in shown)
    if "\\" not in one + other:
        assert (shown == escaped(other)) == (one == other)


@pytest.mark.parametrize("text", [*EMOJI, *WORDS])
def test_in_prose_emoji_and_words_stay_as_they_are(text):
    told = f"so {text} it is"
    assert prose(told, lambda _: "") == told
    assert plain(told) == told
    assert visible_text(told) == told
    assert clean(told) == told
    assert listed(told) == told
    assert captured(told.encode()) == told


@pytest.mark.parametrize("hidden", [c for c in NOTHING if c != "\ufe0f"])
def test_in_prose_nothing_is_hidden_either(hidden):
    told = f"so{hidden} it is"
    assert visible_text(told) == "so it is"
    assert listed(told) == "so it is"
    assert plain(told) == "so� it is"
    assert captured(told.encode()) == f"so<U+{ord(hidden):04X}> it is"
    assert hidden not in one_line(told)


def test_in_prose_no_message_fits_into_selectors_and_joiners():
    smuggled = "❤" + "\ufe0f\ufe0e" * 20 + "\u200c\u200d" * 20
    assert len(prose(smuggled, lambda _: "")) <= 3
