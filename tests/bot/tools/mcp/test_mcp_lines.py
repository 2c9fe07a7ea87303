import pytest

from bot.guards.redaction import Masker
from bot.tools.mcp.framing import MAX_LINES, ConnectionLost, LineSplitter, StderrLog


def test_messages_are_found_whatever_the_pieces():
    whole = b'{"a":1}\nhello\n\n{"b":2}\n{"c"'
    for size in range(1, len(whole)):
        lines = LineSplitter()
        found = [line for at in range(0, len(whole), size) for line in lines.feed(whole[at : at + size])]
        assert found == [b'{"a":1}', b'{"b":2}']


@pytest.mark.parametrize(
    "pieces", [[b"{" + b"x" * 101], [b"x" * 60, b"x" * 60], [b"x" * 60, b"x" * 60 + b"\n"]]
)
def test_a_message_over_the_limit_ends_it(pieces):
    lines = LineSplitter(100)
    with pytest.raises(ConnectionLost, match="more than 100 bytes"):
        for piece in pieces:
            lines.feed(piece)


def test_a_line_at_the_limit_is_fine():
    assert LineSplitter(100).feed(b"{" * 100 + b"\n") == [b"{" * 100]


def test_too_many_lines_that_only_look_like_messages_end_it():
    lines = LineSplitter()
    for _ in range(1000):
        lines.count_invalid()
    with pytest.raises(ConnectionLost, match="not MCP"):
        lines.count_invalid()


def hearing(mask=str):
    said = []
    return StderrLog(said.append, mask), said


def test_remarks_are_said_a_line_at_a_time_without_control_characters():
    stderr_log, said = hearing()
    stderr_log.feed(b"one\ntw")
    stderr_log.feed(b"o\x1b[31m\xff\n\n\nthree")
    assert said == ["one", "two[31m\ufffd"]
    assert stderr_log.last == "three"


def test_only_the_first_remarks_are_said_and_the_last_words_are_kept():
    stderr_log, said = hearing()
    assert not [stderr_log.feed(b"noise\n" * 1000) for _ in range(10)][-1]
    stderr_log.feed(b"x" * 1_000_000 + b"\nFatal: no such key\n")
    assert len(said) == MAX_LINES + 1
    assert stderr_log.last == "Fatal: no such key"


def test_one_long_line_is_cut():
    stderr_log, said = hearing()
    for _ in range(100):
        stderr_log.feed(b"x" * 65_536)
    stderr_log.feed(b"\nnext\n")
    assert said[1] == "next"
    assert len(said[0]) == 500


def test_remarks_are_masked():
    stderr_log, said = hearing(lambda text: text.replace("hunter2", "[masked]"))
    stderr_log.feed(b"password hunter2\n")
    assert (said, stderr_log.last) == (["password [masked]"], "password [masked]")


def test_a_long_line_of_secrets_is_not_cut_inside_one():
    secret = "s3cret-" * 40
    stderr_log, said = hearing(Masker([secret]))
    stderr_log.feed(b"before\n")
    stderr_log.feed(f"{secret} {secret} {secret} {secret} {secret} {secret} {secret} {secret}\n".encode())
    assert said[1].startswith("[masked]")
    assert "s3cret" not in said[1]
    assert stderr_log.last == ""
