"""What a running tool does, in words."""

import pytest

from bot.tools.labels import LONGEST_LABEL, label


@pytest.mark.parametrize(
    ("name", "summary", "words"),
    [
        ("read_file", "notes.md", "reading notes.md"),
        ("list_files", "", "looking through files"),
        ("weigh", "", "using weigh"),
        ("weigh", "a\n  stone", "using weigh a stone"),
    ],
)
def test_a_tool_has_a_label_in_plain_words(name, summary, words):
    assert label(name, summary) == words


def test_a_label_is_short():
    words = label("read_file", "x" * 500)
    assert len(words) == LONGEST_LABEL and words.endswith("…")
