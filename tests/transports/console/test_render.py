import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.transports.console.script import PAGE
from threads.model import Choice, Outgoing, ThreadId
from transports.console.lookups import Exchange
from transports.console.render import MAX_MARKDOWN, draft, finished, note, recall, render

MAIN = ThreadId("console", "local", "tty", "main")
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def shown(text, width=60, **options):
    return render(Outgoing(MAIN, "k", text), width, **options)


def plain(text, width=60, **options):
    return shown(text, width, colour=False, **options)


@pytest.mark.parametrize("width", [20, 60, 100])
def test_a_page_of_everything_fits_the_width(width):
    lines = STYLE.sub("", shown(PAGE, width)).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert "    return 42" in "\n".join(lines)
    assert "A heading" in lines
    assert " • one" in lines
    assert "    • nested" in lines


def test_a_table_has_columns_and_folds_its_cells():
    text = plain(PAGE, 60)
    assert re.search(r"^ name +meaning$", text, re.MULTILINE)
    assert re.search(r"^ alpha  the first letter of the Greek alphabet, and a long$", text, re.MULTILINE)
    assert re.search(r"^        cell that must fold on a narrow screen$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[the bank](https://evil.example/x)", "the bank (https://evil.example/x)"),
        ("| a |\n|---|\n| [b](http://c.d/) |", "b (http://c.d/)"),
        ("![logo](https://e.org/l.png)", "logo (https://e.org/l.png)"),
        ("<https://e.org/>", "https://e.org/\n"),
        ("one\ntwo", "one\ntwo\n"),
        ("use <b>this</b> <br>", "use <b>this</b> <br>"),
        ("<div>\n*kept*\n</div>", "*kept*"),
        ("Vec<T>", "Vec<T>"),
        ("```\n  two  spaces\n```", "   two  spaces"),
        (":smile: [red]x[/red]", ":smile: [red]x[/red]"),
        ("\n\n", "\n"),
    ],
)
def test_nothing_that_was_written_is_hidden_or_lost(text, expected):
    assert expected in plain(text)


def test_a_link_is_text_and_never_a_terminal_hyperlink():
    assert "\x1b]8" not in shown("[a](http://b.c/) and <http://d.e/>")


def test_escape_sequences_of_a_model_never_reach_the_terminal():
    attack = "a\x1b[2Jb\x9b31mc\x1b]52;c;aGk=\x07d\x1b]0;t\x1b\\e\x08\r\x7f"
    for kind in ("reply", "notice", "error"):
        text = render(Outgoing(MAIN, "k", f"{attack}\n\n```\n{attack}\n```", kind), 60)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", STYLE.sub("", text))


@given(
    st.text(st.sampled_from("#->`~|*_[]()<>!\\ \n\t\r\x1b\x9b&;:=1ax漢\u2028\ud800"), max_size=80),
    st.integers(1, 90),
)
def test_whatever_a_model_writes_can_be_drawn(text, width):
    left = STYLE.sub("", shown(text, width))
    assert not [char for char in left if unicodedata.category(char) == "Cc" and char not in "\n\t"]
    assert left.endswith("\n\n") or not left.strip()


def test_notices_and_errors_look_different_with_and_without_colour():
    def of(kind, colour):
        return render(Outgoing(MAIN, "k", "same", kind), 60, colour=colour)

    assert len({of(kind, colour) for kind in ("reply", "notice", "error") for colour in (True, False)}) == 5
    assert "\x1b[31m" in of("error", colour=True)
    assert "\x1b[2m" in of("notice", colour=True)
    assert "\x1b" not in of("error", colour=False)
    assert "\x1b[2m" in note("mine", 60)


def test_code_stands_close_to_what_is_around_it():
    assert plain("one\n\n```\ntwo\n```\n\nthree") == "one\n\n two\n\nthree\n\n"


ASKED = (
    Choice("Allow once", "/approve q0123abcd once"),
    Choice("Always here", "/approve q0123abcd always"),
    Choice("Deny", "/deny q0123abcd"),
)


def question(code, width=30, **options):
    text = f"May I use `shell`?\n\n````\n{code}\n````\n\nIt is *new*."
    return render(Outgoing(MAIN, "k", text, "notice", choices=ASKED), width, **options)


def test_a_question_shows_what_it_is_about_and_what_to_type():
    assert question("ls -la", colour=False).split("\n") == [
        "? May I use shell?",
        "",
        "│ ls -la",
        "",
        "It is new.",
        "",
        "  /approve         Allow once",
        "  /approve always  Always here",
        "  /deny            Deny",
        "",
        "",
    ]


def test_beside_another_open_question_it_says_which_one_is_meant():
    text = question("ls", 50, colour=False, alone=False)
    assert "  /approve q0123abcd once    Allow once\n" in text
    assert "  /deny q0123abcd            Deny\n" in text


def test_a_question_about_an_answer_shows_the_words_to_type():
    choices = (Choice("1. Red", "/answer q0123abcd #1"), Choice("b. 3", "/answer q0123abcd #b"))
    asked = Outgoing(
        MAIN, "k", "💬 **The assistant asks:**\n\n> Which?\n\nChoose one.", "notice", choices=choices
    )
    assert render(asked, 60, colour=False).split("\n")[-4:-2] == ["  1  Red", "  b  3"]
    assert "  /answer q0123abcd #b  b. 3\n" in render(asked, 60, colour=False, alone=False)


def test_a_line_that_is_folded_in_a_question_looks_like_no_second_line():
    text = question("echo " + "x" * 30 + "\n\n```\n\tls", colour=False)
    assert "│ echo xxxxxxxxxxxxxxxxxxxxxxx\n┆ xxxxxxx\n│\n│ ```\n│     ls\n" in text


@given(st.text(st.sampled_from("ab #->|~*_[]<>!\\:$;&'\"漢é"), min_size=1, max_size=80), st.integers(4, 60))
def test_nothing_of_what_is_asked_about_is_left_out(code, width):
    rows = [line[2:] for line in question(f"({code})", width, colour=False).split("\n") if line[:1] in "│┆"]
    assert "".join(rows).replace(" ", "") == f"({code})".replace(" ", "")


def test_a_question_in_another_thread_says_how_to_get_there():
    text = question("ls", 50, heading="work", colour=False)
    assert text.startswith("[work]\n? May I")
    assert "  /thread work     go there first, then:\n  /approve         Allow once\n" in text


def test_a_post_of_another_thread_is_headed_by_its_name():
    assert plain("hi", heading="work") == "[work]\nhi\n\n"


def test_a_text_too_long_to_lay_out_is_shown_as_it_is():
    text = "**word** " * (MAX_MARKDOWN // 8)
    assert plain(text) == f"{text}\n\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("one **two** three", "one two\nthree\n"),
        ("1\n2\n3\n4\n5", "3\n4\n5\n"),
        ("漢字漢字漢字", "漢字漢\n字漢字\n"),
        ("x" * 100, "xxxxxxx\nxxxxxxx\nxxxxxxx\n"),
        ("```py\n" + "*a*\n" * 100, " *a*\n *a*\n *a*\n"),
        ("|a|b|\n|-|-|\n" + "|c|d|\n" * 100, " c  d\n c  d\n c  d\n"),
    ],
)
def test_a_draft_is_markdown_of_which_the_last_rows_are_drawn(text, expected):
    assert draft(text, 7, 3, colour=False) == expected


def test_a_draft_stands_below_the_tools_that_ran():
    assert (
        draft("an *answer*", 20, 3, tools=["one", "two", "three"], colour=False)
        == "· two\n· three\nan answer\n"
    )


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("one\n\ntwo", ""),
        ("one\n\ntwo\n", "one\n\n"),
        ("one\n===\n", ""),
        ("# one\ntwo\n", "# one\n"),
        ("a | b\n", ""),
        ("|a|b|\n|-|-|\n|c|d|\n\n", ""),
        ("- one\n\n- two\n", ""),
        ("one\n\n```\na\n\nb\n", "one\n\n"),
        ("one\u2028\n\ntwo\n", "one\u2028\n\n"),
    ],
)
def test_a_block_is_finished_when_no_further_line_can_change_it(text, done):
    assert text[: finished(text)] == done


def test_blocks_that_are_printed_one_by_one_look_as_they_do_together():
    printed = rest = ""
    for char in PAGE:
        rest += char
        printed, rest = printed + plain(rest[: finished(rest)] or "\n"), rest[finished(rest) :]
    assert re.sub(r"\n{2,}", "\n\n", printed.lstrip("\n") + plain(rest)) == re.sub(
        r"\n{3,}", "\n\n", plain(PAGE)
    )


def test_of_what_was_said_before_only_both_ends_are_shown_dimmed():
    shown = recall(Exchange("now", "a" * 90_000, "\n\n".join(f"line {n}" for n in range(9_999))), 40)
    rows = STYLE.sub("", shown).splitlines()
    assert (len(rows), max(map(len, rows))) == (2 * (8 + 1 + 4) + 1, 40)
    assert (rows[13], rows[21], rows[-2]) == ("  line 0", "  …", "  line 9998")
    assert "\x1b[2mline 9998" in shown
