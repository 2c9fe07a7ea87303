"""The lines of a MEMORY.md: what is read is what was written, and what was written by hand stays as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.prompt.memory_lines import (
    Note,
    append_note,
    clean,
    matches,
    new_note,
    parse_note,
    parse_notes,
    select_notes,
    to_text,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
MARKS = st.lists(st.sampled_from([*"<!-->`a \n\u200b"])).map("".join)
HAND = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=80)


def note(text="The server is fern.", scope="channel", day="2026-11-22", user="U123", taken=()):
    return new_note(scope, text, day, user, taken)


def test_a_note_is_a_list_entry_with_its_id_day_and_author_in_a_comment():
    made = note()
    assert made.raw == f"- The server is fern.  <!-- {made.id} 2026-11-22 U123 -->"
    assert made.id.startswith("c")
    assert parse_note(made.raw) == made


@given((TEXT | MARKS).map(clean).filter(bool), st.sampled_from(["thread", "channel", "global"]), TEXT)
def test_whatever_is_remembered_is_read_back(text, scope, user):
    made = note(text, scope, user=user)
    assert "\n" not in made.raw
    (read, end) = parse_notes(to_text(append_note([], made)))
    assert (read, end) == (made, Note(""))
    assert (read.text, read.id[0]) == (text, scope[0])


@given(TEXT | MARKS)
def test_a_clean_text_is_one_visible_line_and_clean_again(text):
    cleaned = clean(text)
    assert cleaned == clean(cleaned)
    assert len(cleaned.splitlines()) <= 1
    assert not any(mark in cleaned for mark in ("-->", "<!--", "```"))


@given(
    st.lists(HAND | TEXT.map(clean).filter(bool).map(lambda text: note(text).raw)),
    TEXT.map(clean).filter(bool),
)
def test_adding_and_taking_a_note_keeps_every_other_line_byte_for_byte(before, text):
    file = "\n".join(before)
    there = parse_notes(file)
    assert to_text(there) == file
    new = note(text, taken=[line.id for line in there])
    more = parse_notes(to_text(append_note(there, new)))
    assert [line.id for line in more].count(new.id) == 1
    fewer = to_text([line for line in more if line.id != new.id])
    assert fewer.removesuffix("\n") == file.removesuffix("\n")


@pytest.mark.parametrize(
    "line",
    [
        "# Facts",
        "",
        "- by hand",
        "- almost <!-- c3f2a 2026-11-22 -->",
        "- almost <!-- c3f2a yesterday U1 -->",
        "- almost <!-- x3f2a 2026-11-22 U1 -->",
        "not an entry <!-- c3f2a 2026-11-22 U1 -->",
        "- open <!-- c3f2a 2026-11-22 U1",
        "- author <!-- c3f2a 2026-11-22 U1\x1b[2J -->",
        "<!-- a comment -->",
        "\t- indented\r",
    ],
)
def test_a_line_that_is_no_note_is_by_hand(line):
    assert (parse_note(line).id, parse_note(line).raw) == ("", line)


@pytest.mark.parametrize(
    "line", ["  * text <!--c3f2a 2026-11-22 U1-->\r", "- text <!-- c3f2a 2026-11-22 U1 -->  "]
)
def test_a_note_that_was_moved_or_reworded_by_hand_is_still_one(line):
    assert (parse_note(line).text, parse_note(line).id, parse_note(line).by) == ("text", "c3f2a", "U1")


def test_what_cannot_be_seen_is_not_remembered_and_what_joins_letters_is():
    hidden = "".join(chr(0xE0000 + ord(c)) for c in "obey")
    assert clean(f"a\u202e\u200b{hidden}b\x1b[31m\0c") == "ab [31m c"
    assert clean("👩\u200d🚀") == "👩\u200d🚀"


def test_an_id_that_is_taken_is_not_given_again_and_the_same_words_give_the_same():
    first = note()
    second = note(taken=[first.id])
    assert second.id != first.id
    assert note(taken=[first.id]) == second


def test_all_words_must_occur_however_they_are_written():
    assert matches(note("The Server is FERN"), "fern server")
    assert not matches(note("The Server is FERN"), "fern oak")
    assert matches(note(), " ")


def test_when_room_is_short_the_newest_notes_and_the_top_of_what_was_written_by_hand_stay():
    by_hand = [Note(f"line {n} {'x' * 90}") for n in range(10)]
    notes = [note(f"note {n} {'x' * 90}") for n in range(10)]
    kept, left_out = select_notes([*by_hand, *notes], 700)
    assert [line.text[:6] for line in kept] == ["line 0", "line 1", "line 2", "note 7", "note 8", "note 9"]
    assert left_out == 14


def test_room_that_one_kind_does_not_need_is_the_others():
    notes = [note(f"note {n} {'x' * 60}") for n in range(10)]
    room = sum(len(one.line) + 1 for one in notes)
    assert select_notes(notes, room) == (notes, 0)
    assert select_notes([Note("y" * (room - 1))], room)[1] == 0
