"""`threadfast chat` as a person meets it: a process, three pipes, an exit code."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from bot.config.load import load
from bot.wiring.chat_lookups import PastChats, lookups
from transports.console.parse import thread_id

ROOT = Path(__file__).parents[2]
LIMIT_S = 60
REPEAT = "(this may be a repeat)"


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "bot", "chat", *options]


def environment(home: Path) -> dict[str, str]:
    """Return an environment with no key, no proxy and no terminal."""
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}


def offline(folder: Path) -> None:
    """Choose the model by settings, so that no port is probed for one."""
    (folder / "settings.json").write_text('{"model": "offline/demo"}')


def chat(folder: Path, typed: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    return bot(folder, "chat", typed, *options)


def bot(folder: Path, name: str, typed: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "bot", name, *options],
        input=typed,
        capture_output=True,
        cwd=folder,
        env=environment(folder),
        timeout=LIMIT_S,
        check=False,
    )


@contextmanager
def chatting(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a chat with open pipes; standard output holds one answer until it is read."""
    with subprocess.Popen(
        command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment(folder),
    ) as process:
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        try:
            yield process
        finally:
            process.kill()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def journal(folder: Path) -> list[dict[str, str]]:
    path = folder / "data" / "journal.jsonl"
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def test_echo_hello_gets_one_answer_and_exit_code_0(tmp_path):
    done = chat(tmp_path, b"hello\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert [line["kind"] for line in journal(tmp_path)].count("settled") == 1


def test_a_question_to_a_pipe_is_declined_with_a_word(tmp_path):
    offline(tmp_path)
    done = chat(tmp_path, b"ask Which? | this | that\n")
    assert done.returncode == 0
    assert b"(I had a question, but nobody can be asked here.)" in done.stdout


def test_a_chat_that_begins_again_finds_its_threads_and_what_was_said_last_in_each(tmp_path):
    offline(tmp_path)
    said = b"hello\n/status\n/thread work\none\nkeep my-own-secret\n/thread anew\nhello\n/new\n"
    assert chat(tmp_path, said).returncode == 0
    settings = load(tmp_path / "settings.json", environ={}).settings
    found = lookups(settings, {"OPENAI_API_KEY": "my-own-secret"}, ["offline/demo"])
    main, work, *others = (found.last(thread_id(name)) for name in ("main", "work", "anew", "never"))
    assert (main.asked, main.answer[:6], others) == ("hello", "Hello!", [None, None])
    assert (work.asked, "my-own" in work.answer) == ("keep [masked]", False)
    threads = {name: about.removeprefix(f"{main.at[:10]} ")[7:] for name, about in found.threads().items()}
    assert threads == {"anew": "hello", "work": "one", "main": "hello"}
    assert found.models() == {"default": "the usual one", "offline/demo": "free"}
    assert PastChats(Mock(side_effect=OSError), str).threads() == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_a_message_that_was_cut_off_is_answered_by_the_next_process(tmp_path, number):
    offline(tmp_path)
    with chatting(tmp_path) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.write(b"first-question\nsecond-question\n")
        first.stdin.flush()
        until(lambda: [line["kind"] for line in journal(tmp_path)].count("intent") == 2)
        first.send_signal(number)
        assert first.wait(LIMIT_S) == -number
        seen = first.stdout.read()
    assert b"first-question" in seen
    assert b"second-question" not in seen
    second = chat(tmp_path, b"third-question\n")
    assert second.returncode == 0, second.stderr
    assert re.findall(rb"(\w+)-question", second.stdout) == [b"second", b"third"]
    assert second.stdout.count(REPEAT.encode()) == 1
    assert second.stdout.index(REPEAT.encode()) < second.stdout.index(b"third-question")
    ends = [line["message_id"] for line in journal(tmp_path) if line["kind"] == "settled"]
    assert len(ends) == len(set(ends)) == 3


def test_a_second_process_on_the_same_folder_exits_78_naming_the_holder(tmp_path):
    offline(tmp_path)
    with chatting(tmp_path) as first:
        assert first.stdin is not None
        first.stdin.write(b"hello\n")
        first.stdin.flush()
        until(lambda: len(journal(tmp_path)) > 0)
        second = chat(tmp_path, b"hello\n")
        assert second.returncode == 78
        assert f"pid {first.pid}). It is a chat or a question in another terminal" in second.stderr.decode()
        assert "another folder with --data" in second.stderr.decode()
        assert second.stdout == b""


@pytest.mark.parametrize("name", ["chat", "ask"])
def test_a_failure_in_a_pipe_is_a_sentence_that_says_what_to_do_and_its_log_is_in_a_file(tmp_path, name):
    mine = {"model": "mine/x", "providers": {"mine": {"base_url": "http://127.0.0.1:1/v1"}}}
    (tmp_path / "settings.json").write_text(json.dumps(mine | {"tools": {"sandbox": "off"}}))
    done = bot(tmp_path, name, b"hello\n")
    assert done.returncode == 1
    said = (done.stdout + done.stderr).decode()
    sentence = re.search(
        r'write "prices": {"mine/x": .*"free": true under providers.mine. \(ref (\w+)\)', said
    )
    assert sentence, said
    note = "Note: The shell is off: commands are switched off in the settings." in said
    assert note == (name == "chat")
    assert "turn.failed" not in said
    log = (tmp_path / "data" / "threadfast.log").read_text()
    assert f"correlation_id={sentence[1]}" in log
    assert "turn.failed: PriceUnknown" in log


def test_logs_go_to_standard_error_where_the_settings_name_a_level(tmp_path):
    (tmp_path / "settings.json").write_text('{"model": "offline/demo", "observe": {"log_level": "info"}}')
    done = chat(tmp_path, b"hello\n")
    assert b"turn.settled: answered" in done.stderr
    assert not (tmp_path / "data" / "threadfast.log").exists()


@pytest.mark.parametrize("place", ["a file", "below a file", "/proc/nope"])
def test_a_data_folder_that_cannot_be_used_is_refused_with_a_word(tmp_path, place):
    offline(tmp_path)
    file = tmp_path / "plain-file"
    file.write_text("mine")
    folder = {"a file": str(file), "below a file": str(file / "data")}.get(place, place)
    done = chat(tmp_path, b"hello\n", "--data", folder)
    assert_refused(done)
    assert folder in done.stderr.decode()
    assert file.read_text() == "mine"


def test_a_journal_that_is_a_folder_is_named(tmp_path):
    (tmp_path / "data" / "journal.jsonl").mkdir(parents=True)
    done = chat(tmp_path, b"hello\n")
    assert_refused(done)
    assert "journal.jsonl: Is a directory" in done.stderr.decode()


def test_data_of_a_newer_version_is_left_untouched(tmp_path):
    record = b'{"v":99,"kind":"new"'
    line = record + b',"crc":"%08x"}\n' % zlib.crc32(record)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "journal.jsonl").write_bytes(line)
    done = chat(tmp_path, b"hello\n")
    assert_refused(done)
    assert "newer Threadfast" in done.stderr.decode()
    assert (tmp_path / "data" / "journal.jsonl").read_bytes() == line


def test_settings_that_are_a_folder_are_refused_with_a_word(tmp_path):
    (tmp_path / "settings.json").mkdir()
    assert_refused(chat(tmp_path, b"hello\n"))
    assert_refused(chat(tmp_path, b"hello\n", "--settings", str(tmp_path)))


@pytest.mark.parametrize("command", ["chat", "check", "run"])
def test_a_key_or_a_skill_that_is_mistyped_ends_every_start_with_a_word(tmp_path, command):
    (tmp_path / "data" / "skills" / "deploy").mkdir(parents=True)
    for settings, words in [
        ({"modle": "anthropic/x"}, 'modle: unknown key; the nearest known one is "model"'),
        (
            {"model": "offline/demo", "skills": ["deploi"]},
            f'skills[0]: no skill is called "deploi" in {tmp_path}/data/skills; the nearest known one is "deploy"',
        ),
    ]:
        (tmp_path / "settings.json").write_text(json.dumps(settings))
        done = bot(tmp_path, command, b"hello\n")
        assert_refused(done)
        assert words in done.stderr.decode()


@pytest.mark.parametrize("deep", ['{"a":' * 100_000, "[" * 100_000 + "]" * 100_000], ids=["objects", "lists"])
def test_settings_nested_100_000_deep_are_refused_with_a_word(tmp_path, deep):
    (tmp_path / "settings.json").write_text(deep)
    assert_refused(chat(tmp_path, b"hello\n"))


def assert_refused(done: subprocess.CompletedProcess[bytes]) -> None:
    said = done.stderr.decode()
    assert done.returncode == 78, said
    assert 10 < len(said) < 1000
    assert "Traceback" not in said
    assert done.stdout == b""


ODD = {
    "a megabyte": b"x" * 1_000_000,
    "two megabytes": b"x" * 2_000_000,
    "binary": bytes(n for n in range(256) if n != 10),
    "a lone surrogate": b"half \xed\xa0\xbd of an emoji",
    "a line separator": "one\u2028two\u2029three\x85four".encode(),
    "controls": b"\x1b[2J\x1b]0;title\x07\x00\x08 bell",
    "a carriage return": b"hello\r",
}


@pytest.mark.parametrize("line", ODD.values(), ids=ODD)
def test_an_odd_line_gets_an_answer_or_a_word_and_the_next_line_is_served(tmp_path, line):
    offline(tmp_path)
    done = chat(tmp_path, line + b"\nlast-question\n")
    said, noted = done.stdout.decode(), done.stderr.decode()
    ends = [line["outcome"] for line in journal(tmp_path) if line["kind"] == "settled"]
    assert "Traceback" not in said + noted
    assert "last-question" in said
    assert not any(ord(c) < 32 and c not in "\n\t" for c in said + noted)
    if done.returncode == 0:
        assert ends == ["answered", "answered"]
    else:
        assert (done.returncode, ends) == (1, ["answered"])
        assert "line 1" in noted


def test_what_cannot_be_done_here_names_the_next_step(tmp_path):
    offline(tmp_path)
    done = chat(tmp_path, b"/model\n/model other/x\n/schedule\n/status\nwhat can you do?\n")
    model, other, schedule, status, can = done.stdout.decode().split("\n", 4)
    assert model.startswith(
        "Model: offline/demo. It is the only one. Whoever runs this bot connects another with"
    )
    assert "`threadfast init`" in model
    assert other.startswith(
        "I know no model of that name here: offline/demo is the only one. Whoever runs this"
    )
    assert "by adding `schedule` to `tools.enabled` in settings.json" in schedule
    assert "files, shell, web_fetch, memory, skills" in schedule
    assert status.startswith("Idle; 0 waiting. Model: offline/demo.")
    assert "only one" not in status
    assert "`run COMMAND`" in can
    assert done.returncode == 0
