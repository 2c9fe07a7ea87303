"""The two ends of a stream, as text that is safe to show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.shell.sandbox.output_capture import OutputCapture, plain


def captured(*chunks, size=12_000):
    capture = OutputCapture(size)
    for chunk in chunks:
        capture.add(chunk)
    return capture


@given(st.lists(st.binary(max_size=50)), st.integers(1, 40))
def test_the_two_ends_of_a_stream_are_kept_however_it_comes(chunks, size):
    chunks = [chunk.translate(None, b"\r\x1b") for chunk in chunks]
    capture = captured(*chunks, size=size)
    whole = b"".join(chunks)
    if len(whole) <= 2 * size:
        assert capture.text() == plain(whole) and capture.left_out == 0
    else:
        assert capture.left_out == len(whole) - 2 * size
        middle = f"\n[... {capture.left_out} bytes left out ...]\n"
        assert capture.text() == plain(whole[:size]) + middle + plain(whole[-size:])


FRAMES = {
    "a bar": [b"\r%3d%% of the file" % (n // 30) for n in range(1, 3001)],
    "a bar that ends its frames": [b"%3d%% of the file\r" % (n // 30) for n in range(1, 3001)],
    "a row that is erased first": [b"\x1b[2K\x1b[1G%3d%% of the file" % (n // 30) for n in range(1, 3001)],
    "a bar that is cleared by blanks": [b"\r%3d%% of the file  \r" % (n // 30) for n in range(1, 3001)],
}


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("at", [7, 4096])
def test_of_a_progress_bar_the_last_state_is_left(frames, at):
    stream = b"start\n" + b"".join(frames) + b"\ndone\n"
    text = captured(*[stream[n : n + at] for n in range(0, len(stream), at)]).text()
    assert text.splitlines()[0] == "start"
    assert text.splitlines()[1].strip() == "100% of the file"
    assert "done" in text
    assert "[2999 earlier states of lines that were written over are left out]" in text
    assert len(text) < 200


def test_bars_of_several_rows_leave_their_last_state():
    draw = b"one %d\ntwo %d\n"
    frames = [draw % (n, n) for n in range(3000)]
    text = captured(b"start\n" + b"\x1b[2A".join(frames) + b"done").text()
    assert text.startswith("start\none 2999\ntwo 2999\ndone\n[")


def test_a_line_end_of_two_characters_writes_nothing_over():
    assert captured(b"a\r", b"\nb\r\n").text() == "a\nb\n"


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
