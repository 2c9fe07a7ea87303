"""A data folder of years: a command opens the files that it needs, and no others.

What must not be opened is a folder by the name of a file: opening it fails, and so does the command.
"""

import io
import os
from dataclasses import replace

import pytest

from bot.budget.budgets import Call, Commit
from bot.budget.budgets import record_adapter as ledger_adapter
from bot.observe.audit import AuditRecord
from bot.ports.model import Usage
from bot.reports import line_reader
from bot.reports.files import FileReader
from bot.reports.line_reader import lines_from
from bot.store.data_version import prepare
from tests.bot.cli.data_folders import (
    DAY,
    at,
    document,
    exchange,
    threadfast,
    write_audit,
    write_records,
    write_thread,
)

THREAD = "slack:T1:C1:1.1"
OTHERS = ("audit/2026-11-19.jsonl", "audit/2026-11-21.jsonl", "usage/2026-10.jsonl", "usage/2026-12.jsonl")


@pytest.fixture
def years(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(5))
    write_audit(tmp_path, AuditRecord(at=at(5), kind="retry", thread_id=THREAD, message_id="m5"))
    call = Call(THREAD, "U1", "slack:T1:C1:m5", "p/m", DAY)
    spent = Commit(seq=1, at=at(5), call=call, usage=Usage(1, 1), micros=7)
    write_records(tmp_path / "usage" / f"{DAY[:7]}.jsonl", ledger_adapter(), spent)
    for name in OTHERS:
        (tmp_path / name).mkdir()
    return tmp_path


def test_why_opens_the_audit_of_the_days_of_the_message_and_the_ledger_of_its_month_alone(years):
    [message] = document(years, "why", "m5")["messages"]
    assert {"retry", "model call", "settled"} <= {event["kind"] for event in message["events"]}


def test_why_of_a_message_without_an_outcome_reads_on_until_today(years):
    write_thread(years, "1.1", *exchange(5)[:-1])
    assert threadfast(years, "why", "m5").exit_code == 1


def test_what_is_written_just_after_midnight_of_a_message_is_found(tmp_path):
    late = [replace(entry, at=f"{DAY}T23:59:59.000+00:00") for entry in exchange(5)]
    write_thread(tmp_path, "1.1", *late)
    write_audit(
        tmp_path, AuditRecord(at="2026-11-21T00:00:01", kind="retry", thread_id=THREAD, message_id="m5")
    )
    [message] = document(tmp_path, "why", "m5")["messages"]
    assert "retry" in {event["kind"] for event in message["events"]}


def test_a_list_opens_the_logs_that_it_shows_and_no_others(tmp_path):
    for n in range(5):
        write_thread(tmp_path, f"{n}.1", *exchange(n))
    for n in range(3):
        log = tmp_path / "threads" / "slack" / f"T1~C1~{n}.1" / "log.jsonl"
        log.unlink()
        log.mkdir()
        os.utime(log, (n, n))
    found = document(tmp_path, "threads", "list", "--limit", "2")
    assert ([one["thread"][-3:] for one in found["threads"]], found["total"]) == (["4.1", "3.1"], 5)


def test_a_start_opens_no_folder_of_a_thread(tmp_path, monkeypatch):
    write_thread(tmp_path, "1.1", *exchange(5))
    opened, scan = list[str](), os.scandir
    monkeypatch.setattr("os.scandir", lambda path: opened.append(str(path)) or scan(path))
    prepare(tmp_path)
    assert opened
    assert not [path for path in opened if "threads" in path]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
def test_lines_are_whole_wherever_a_block_ends(monkeypatch, size):
    monkeypatch.setattr(line_reader, "BLOCK", size)
    whole = [b"one", b"", b"a long line with many words", b"two"]
    file = io.BytesIO(b"\n".join(whole) + b"\nstill being writ")
    assert [*lines_from(file)] == whole
    assert [*lines_from(file)] == []
    file.write(b"still being written\n")
    file.seek(-20, io.SEEK_END)
    assert [*lines_from(file)] == [b"still being written"]


@pytest.mark.parametrize("size", [4, 16, 1000])
def test_no_line_with_a_piece_is_missed_wherever_a_block_ends(monkeypatch, size):
    monkeypatch.setattr(line_reader, "BLOCK", size)
    file = io.BytesIO(b"nothing\nthe needle is here\n" * 3 + b"nothing\n")
    assert [line for line in lines_from(file, [b"needle"]) if b"needle" in line] == [
        b"the needle is here"
    ] * 3
    assert [*lines_from(io.BytesIO(b"hay\n" * 9), [b"needle"])] == []


@pytest.mark.parametrize("before", range(40, 50))
def test_a_thread_is_found_by_words_that_lie_across_two_blocks(tmp_path, monkeypatch, before):
    monkeypatch.setattr("bot.reports.files.BLOCK", 16)
    folder = write_thread(tmp_path, "1.1", *exchange(1))
    write_thread(tmp_path, "2.1", *exchange(2))
    (folder / "log.jsonl").write_bytes(b"x" * before + b"needles" + b"x" * 40)
    assert [one.name for one in FileReader(tmp_path).holding([b"sword", b"needles"])] == [THREAD]
