"""The two ends of a stream, as text that is safe to show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.tools.sandbox.output_capture import OutputCapture, plain


@given(st.lists(st.binary(max_size=50)), st.integers(1, 40))
def test_the_two_ends_of_a_stream_are_kept_however_it_comes(chunks, size):
    captured = OutputCapture(size)
    for chunk in chunks:
        captured.add(chunk)
    whole = b"".join(chunks)
    if len(whole) <= 2 * size:
        assert captured.text() == plain(whole) and captured.left_out == 0
    else:
        assert captured.left_out == len(whole) - 2 * size
        middle = f"\n[... {captured.left_out} bytes left out ...]\n"
        assert captured.text() == plain(whole[:size]) + middle + plain(whole[-size:])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07after", "after"),
        (b"\x1b]8;;https://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bP1$r\x1b\\x\x1bcy\x1b(Bz", "xyz"),
        (b"\x1b[2J\x1b[Hcleared", "cleared"),
        (b"bell\x07 back\x08 nul\0 del\x7f", "bell␇ back␈ nul␀ del<U+007F>"),
        (b"\x1b", "␛"),
        (b"\x1b]0;never ends\nvisible", "␛]0;never ends\nvisible"),
        ("\x9b31mc1".encode(), "<U+009B>31mc1"),
        (b"a\r\nb\rc", "a\nb\nc"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("user\u202etxt.exe".encode(), "user<U+202E>txt.exe"),
        ("zero\u200bwidth\ufeff".encode(), "zero<U+200B>width<U+FEFF>"),
        ("tag\U000e0041".encode(), "tag<U+E0041>"),
        ("äöü 漢字 🎉".encode(), "äöü 漢字 🎉"),
    ],
)
def test_no_output_can_speak_to_a_terminal_or_hide(data, text):
    assert plain(data) == text


@given(st.binary())
def test_nothing_unseen_is_left(data):
    assert all(each in "\n\t" or each.isprintable() or ord(each) > 0x9F for each in plain(data))
