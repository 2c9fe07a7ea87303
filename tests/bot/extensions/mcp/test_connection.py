import pytest

from bot.extensions.mcp.connection import MAX_LINES, StderrLog
from bot.guards.redaction import Masker


@pytest.fixture
def lines():
    return []


@pytest.fixture
def stderr_log(lines):
    return StderrLog(lines.append, lambda text: text.replace("hunter2", "[masked]"))


def test_standard_error_is_logged_a_line_at_a_time_without_control_characters(stderr_log, lines):
    stderr_log.feed(b"one\ntw")
    stderr_log.feed(b"o\x1b[31m\xff\n\npassword hunter2\n\nthree")
    assert lines == ["one", "two[31m\ufffd", "password [masked]"]
    assert stderr_log.last == "three"


def test_only_the_first_lines_are_logged_and_the_last_one_is_kept_masked(stderr_log, lines):
    assert not [stderr_log.feed(b"noise\n" * 1000) for _ in range(10)][-1]
    stderr_log.feed(b"x" * 1_000_000 + b"\nFatal: no such key hunter2\n")
    assert len(lines) == MAX_LINES + 1
    assert stderr_log.last == "Fatal: no such key [masked]"


def test_a_long_line_is_cut(stderr_log, lines):
    for _ in range(100):
        stderr_log.feed(b"x" * 65_536)
    stderr_log.feed(b"\nnext\n")
    assert [len(line) for line in lines] == [500, 4]


def test_a_long_line_of_secrets_is_not_cut_inside_one(lines):
    secret = "s3cret-" * 40
    stderr_log = StderrLog(lines.append, Masker([secret]))
    stderr_log.feed(f"before\n{' '.join([secret] * 8)}\n".encode())
    assert lines[1].startswith("[masked]")
    assert "s3cret" not in lines[1]
    assert stderr_log.last == lines[1]
