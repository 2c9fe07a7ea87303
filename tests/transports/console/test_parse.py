import tracemalloc

import pytest

from tests.transports.console.script import COMMANDS
from threads.model import Author, ThreadId
from transports.console.parse import BAD_NAME, KEYS, Action, Lines, Sender, action, help_text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_the_bytes_arrive(size):
    data = "one\n\ntwo\u2028still two\r\n\x00\x85\x1c\nlast".encode()
    lines, found = Lines(), []
    for at in range(0, len(data), size):
        found += lines.feed(data[at : at + size])
    found += lines.end()
    assert found == [b"one", b"", "two\u2028still two\r".encode(), b"\x00\xc2\x85\x1c", b"last"]


def test_an_input_that_ends_with_a_newline_has_no_line_after_it():
    lines = Lines()
    assert lines.feed(b"one\n") == [b"one"]
    assert lines.end() == []


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_line_of_the_limit_passes_and_one_byte_more_is_marked(size):
    data = b"12345\n123456\n1\n1234567"
    lines, found = Lines(limit=5), []
    for at in range(0, len(data), size):
        found += lines.feed(data[at : at + size])
    assert found + lines.end() == [b"12345", None, b"1", None]


def test_a_line_without_an_end_is_not_stored():
    lines, piece = Lines(limit=5), b"x" * 100_000
    tracemalloc.start()
    assert not any(lines.feed(piece) for _ in range(100))
    assert tracemalloc.get_traced_memory()[0] < len(piece)
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", None),
        ("  \t ", None),
        ("  hello  ", Action("send", "  hello  ")),
        ("/thread", Action("list")),
        ("/thread  ", Action("list")),
        ("/thread work", Action("switch", "work")),
        (" /thread  a.b-c_D9 ", Action("switch", "a.b-c_D9")),
        ("/thread " + "x" * 64, Action("switch", "x" * 64)),
        ("/thread " + "x" * 65, Action("reject", BAD_NAME)),
        ("/thread a b", Action("reject", BAD_NAME)),
        ("/thread ..", Action("reject", BAD_NAME)),
        ("/thread a/b", Action("reject", BAD_NAME)),
        ("/thread Büro", Action("reject", BAD_NAME)),
        (
            "/threads",
            Action("reject", "I do not know /threads. Did you mean /thread? /help lists what I know."),
        ),
        (
            "/thead work",
            Action("reject", "I do not know /thead. Did you mean /thread? /help lists what I know."),
        ),
        ("/attach", Action("attach", "")),
        ("/attach  my list.csv ", Action("attach", "my list.csv")),
        ("attach x", Action("send", "attach x")),
        ("/statsu", Action("send", "/statsu")),
        ("thead work", Action("send", "thead work")),
        ("/help", Action("help")),
        ("/help me", Action("send", "/help me")),
        ("/quit", Action("quit")),
        ("/stop", Action("send", "/stop")),
        ("quit", Action("send", "quit")),
    ],
)
def test_a_line_is_one_action(line, expected):
    assert action(line, COMMANDS) == expected


def test_a_session_never_uses_an_id_twice():
    sender = Sender("s7", Author("you", "Ada"))
    first, second = sender.message("a", "main"), sender.message("b", "work")
    assert (first.id, second.id) == ("s7.1", "s7.2")
    assert first.thread == ThreadId("console", "local", "tty", "main")
    assert second.thread.root == "work"
    assert first.author == Author("you", "Ada")


def test_help_names_every_command_with_its_meaning():
    text = help_text(COMMANDS)
    for command in ("/thread NAME", "/attach PATH", "/help", "/quit", "/stop", "/status", "/new"):
        assert command in text
    assert len(text.splitlines()) == 8


def test_help_folds_a_long_meaning_in_its_own_column():
    text = help_text({"/new": "forget this conversation and start over"}, 50)
    assert "/new          forget this conversation and start\n              over" in text
    assert max(map(len, text.splitlines())) <= 50
    assert help_text(COMMANDS, 1).count("\n") > help_text(COMMANDS, 50).count("\n")


def test_help_in_a_narrow_window_has_no_second_column():
    text = help_text({"/approve [always | AMOUNT]": "say yes to my question"}, 36, keys=KEYS)
    assert "/approve [always | AMOUNT]  say yes\n  to my question\n" in text
    assert max(map(len, text.splitlines())) <= 36
