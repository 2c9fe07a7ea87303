import json
import os
import stat
import sys
import tracemalloc

import pytest

from bot.reports import files
from bot.reports import thread as telling
from tests.bot.cli.data_folders import at, document, exchange, threadfast, write_records, write_thread
from threads.log import LogEntry, entry_adapter
from threads.model import Message, Text, ThreadId, ToolCall, ToolResult
from threads.store.context import Line, line_adapter
from threads.store.data_folder import thread_folder

KEY = "sk-abcdef1234567890abcdef1234"


def test_the_list_has_the_last_thread_first_and_tells_how_it_ended(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1), *exchange(2, "and now?", outcome="stopped"))
    write_thread(tmp_path, "2.2", *exchange(5), transport="discord")
    found = document(tmp_path, "threads", "list")
    assert found["total"] == 2
    names = ["discord:T1:C1:2.2", "slack:T1:C1:1.1"]
    assert [one["thread"] for one in found["threads"]] == names
    rows = threadfast(tmp_path, "threads", "list").stdout.splitlines()[1:]
    assert [row.split()[5:7] for row in rows] == [["U1", name] for name in names]
    last = found["threads"][1]
    assert last == {**last, "messages": 2, "outcome": "stopped", "text": "and now?", "author": "U1"}


def test_a_thread_whose_first_message_waits_is_in_the_list(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    thread_folder(tmp_path, ThreadId("slack", "T1", "C1", "2.2")).mkdir()
    shown = threadfast(tmp_path, "threads", "list").stdout.splitlines()
    assert shown[1].split()[2:] == ["0", "-", "pending", "-", "slack:T1:C1:2.2"]


def test_only_what_is_shown_is_read(tmp_path, monkeypatch):
    for n in range(30):
        write_thread(tmp_path, f"{n}.0", *exchange(n))
    read = []
    summaries = telling.summaries
    monkeypatch.setattr(
        telling, "summaries", lambda reader, shown: read.extend(shown) or summaries(reader, shown)
    )
    result = threadfast(tmp_path, "threads", "list", "--limit", "3")
    assert len(result.stdout.splitlines()) == 4
    assert [folder.name for folder in read] == ["slack:T1:C1:29.0", "slack:T1:C1:28.0", "slack:T1:C1:27.0"]
    assert "and 27 more" in result.stderr


def test_the_list_can_be_narrowed(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    write_thread(tmp_path, "2.2", *exchange(5), transport="discord")
    assert document(tmp_path, "threads", "list", "--transport", "slack")["total"] == 1
    assert document(tmp_path, "threads", "list", "--since", "1970-01-01T10:00:03")["total"] == 1
    assert threadfast(tmp_path, "threads", "list", "--since", "2h").stdout == "No such threads.\n"
    assert threadfast(tmp_path, "threads", "list", "--since", "soon").exit_code == 2


def test_a_thread_has_many_names(tmp_path):
    write_thread(tmp_path, "1700000000.000001", *exchange(1, "found"))
    for name in (
        "slack:T1:C1:1700000000.000001",
        "C1:1700000000.000001",
        "1700000000.000001",
        "T1~C1~1700000000.000001",
        "https://x.slack.com/archives/C1/p1700000000000001",
        "https://x.slack.com/archives/C1/p1700000009000001?thread_ts=1700000000.000001&cid=C1",
    ):
        assert "found" in threadfast(tmp_path, "threads", "show", name).stdout, name


def test_an_unclear_name_is_answered_with_the_clear_ones(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1), channel="C1")
    write_thread(tmp_path, "1.1", *exchange(1), channel="C2")
    result = threadfast(tmp_path, "threads", "show", "1.1")
    assert result.exit_code == 1
    assert "slack:T1:C1:1.1" in result.stderr
    assert "slack:T1:C2:1.1" in result.stderr
    assert threadfast(tmp_path, "threads", "show", "none").exit_code == 1


def test_the_last_messages_are_found_from_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "END", 64)
    write_thread(tmp_path, "1.1", *(entry for n in range(20) for entry in exchange(n, f"text {n}")))
    for wanted in (1, 3, 20, 50):
        found = document(tmp_path, "threads", "show", "1.1", "--last", str(wanted))
        ids = [entry["message_id"] for entry in found["entries"] if entry["kind"] == "message"]
        assert ids == [f"m{n}" for n in range(20)][-wanted:]


def test_tools_are_shown_with_the_message_that_they_were_used_for(tmp_path):
    folder = write_thread(tmp_path, "1.1", *exchange(1), *exchange(2))
    calls = ToolCall("c1", "shell", {"command": "wc"}), ToolCall("c2", "read_file", {"path": "a"})
    context = [
        Message("user", (Text("hello"),), source="m1"),
        Message("assistant", calls),
        Message("user", (ToolResult("c1", "no", is_error=True), ToolResult("c2", "yes"))),
        Message("assistant", (Text("hi"),), source="m1"),
        Message("user", (Text("hello"),), source="m2"),
    ]
    write_records(folder / "context.jsonl", line_adapter(), *map(Line, context))
    first, *_, second, _, _ = document(tmp_path, "threads", "show", "1.1")["entries"]
    assert {tool["tool"]: tool["failed"] for tool in first["tools"]} == {"shell": True, "read_file": False}
    assert second["tools"] == []
    assert 'shell {"command":"wc"}, failed' in threadfast(tmp_path, "threads", "show", "1.1").stdout


def test_what_people_write_cannot_play_tricks(tmp_path):
    text = "a\x1b[2Jb \u202ec\x9bd [bold]e[/bold] 👩‍👩‍👧 שלום\u00a0!\nsecond"
    write_thread(tmp_path, "1.1", *exchange(1, text))
    for command in (
        ("threads", "show", "1.1"),
        ("threads", "export", "1.1"),
        ("threads", "list"),
        ("why", "m1"),
    ):
        shown = threadfast(tmp_path, *command).stdout
        assert not {"\x1b", "\u202e", "\x9b", "\xa0"} & set(shown)
        assert "[bold]e[/bold] 👩‍👩‍👧 שלום !" in shown
        raw = threadfast(tmp_path, *command, *(() if command[1] == "export" else ("--json",))).stdout
        assert command[1] == "export" or raw.isascii()


@pytest.mark.parametrize("form", ["md", "json", "jsonl"])
def test_an_export_masks_secrets_unless_it_is_raw(tmp_path, form):
    write_thread(tmp_path, "1.1", *exchange(1, f"my key is {KEY}"))
    assert KEY not in threadfast(tmp_path, "threads", "export", "1.1", "--format", form).stdout
    assert KEY in threadfast(tmp_path, "threads", "export", "1.1", "--format", form, "--raw").stdout
    for command in (("threads", "show", "1.1"), ("threads", "list"), ("why", "m1")):
        assert "[masked]" in threadfast(tmp_path, *command).stdout


def test_an_export_is_for_its_owner_alone_and_replaces_the_file_as_a_whole(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    target = tmp_path / "out" / "t.json"
    for _ in range(2):
        done = threadfast(tmp_path, "threads", "export", "1.1", "--format", "json", "-o", str(target))
        assert done.exit_code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert len(json.loads(target.read_text())["entries"]) == 3
    assert [path.name for path in target.parent.iterdir()] == ["t.json"]


def test_all_threads_go_into_a_folder(tmp_path):
    for n in range(3):
        write_thread(tmp_path, f"{n}.0", *exchange(n))
    out = tmp_path / "out"
    result = threadfast(tmp_path, "threads", "export", "--all", "-o", str(out))
    assert result.exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [f"slack~T1~C1~{n}.0.md" for n in range(3)]
    assert threadfast(tmp_path, "threads", "export", "--all").exit_code == 2
    assert threadfast(tmp_path, "threads", "export").exit_code == 2


def test_files_are_copied_but_no_link_is_followed(tmp_path):
    folder = write_thread(tmp_path, "1.1", *exchange(1))
    secret = tmp_path / "secret"
    secret.write_text("no")
    inside = folder / "workspace" / "sub"
    inside.mkdir(parents=True)
    (inside / "a.txt").write_text("yes")
    (inside / "link").symlink_to(secret)
    os.link(secret, inside / "second")
    (folder / "workspace" / "away").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    files = tmp_path / "files"
    result = threadfast(tmp_path, "threads", "export", "1.1", "--files", str(files))
    assert [path for path in files.rglob("*") if not path.is_dir()] == [files / "sub" / "a.txt"]
    assert "- `sub/a.txt`, 3 bytes" in result.stdout
    assert "1 file copied" in result.stderr


def test_a_long_thread_is_written_a_line_at_a_time(tmp_path):
    folder = write_thread(tmp_path, "1.1", *exchange(1))
    line = LogEntry(at=at(2), kind="reply", message_id="m1", text="x" * 40_000)
    write_records(folder / "log.jsonl", entry_adapter(), *[line] * 100)
    target = tmp_path / "t.jsonl"
    threadfast(tmp_path, "threads", "export", "1.1")  # imports
    tracemalloc.start()
    try:
        threadfast(tmp_path, "threads", "export", "1.1", "--format", "jsonl", "-o", str(target))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert target.stat().st_size > 4_000_000
    assert peak < 2_000_000


def test_damaged_lines_are_left_out_and_counted(tmp_path):
    folder = write_thread(tmp_path, "1.1", *exchange(1), *exchange(2))
    log = folder / "log.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"hello"', b'"hullo"', 1) + b'{"half')
    before = log.read_bytes()
    result = threadfast(tmp_path, "threads", "show", "1.1")
    assert "1 damaged line was left out." in result.stderr
    assert "m2" in result.stdout
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    "command", [("threads", "list"), ("threads", "show", "1.1"), ("threads", "export", "1.1"), ("why", "m2")]
)
def test_a_newer_version_s_files_are_refused_with_the_words(tmp_path, command):
    write_thread(tmp_path, "1.1", *exchange(1), LogEntry(at=at(2), kind="message", message_id="m2", v=99))
    result = threadfast(tmp_path, *command)
    assert result.exit_code == 78
    assert "newer Threadfast" in result.stderr


@pytest.mark.parametrize(
    "command", [("threads", "list"), ("usage",), ("audit",), ("dead-letters", "list"), ("why", "m1")]
)
def test_nothing_yet_is_not_the_same_as_no_such_folder(tmp_path, command):
    missing = threadfast(tmp_path / "none", *command)
    assert (missing.exit_code, "There is no data folder" in missing.stderr) == (1, True)
    empty = threadfast(tmp_path, *command)
    assert empty.exit_code == (1 if command[0] == "why" else 0)
    assert "no data folder" not in empty.output


def test_ctrl_c_ends_it_without_a_word(tmp_path, monkeypatch):
    def pressed():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["bot.extensions.reports.threads"], "look_again", pressed)
    write_thread(tmp_path, "1.1", *exchange(1))
    result = threadfast(tmp_path, "threads", "show", "1.1", "--follow")
    assert (result.exit_code, result.stderr) == (130, "")
