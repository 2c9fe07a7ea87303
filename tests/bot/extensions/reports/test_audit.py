"""The audit, limits and dead letters, as people read them; and what all these commands share."""

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest
from click.testing import CliRunner

from bot.budget.budgets import Call, Commit
from bot.cli import main
from bot.extensions.reports.tables import Column, print_table
from bot.observe.audit import AuditRecord
from bot.ports.model import Usage
from bot.reports import audit_trail
from bot.reports.files import FileReader
from bot.reports.line_reader import Damage
from tests.bot.budget.ledgers import Time
from tests.bot.cli.data_folders import (
    document,
    exchange,
    threadfast,
    write_audit,
    write_records,
    write_thread,
)
from tests.bot.extensions.reports.test_usage_command import spend
from threads.journal.records import Received, record_adapter
from threads.model import Author


def audit(data, day, *records) -> None:
    details = {"tool": "shell", "about": "ls \x1b[2J sk-abcdef1234567890abcdef1234"}
    for kind, root in records:
        about = {"thread_id": f"slack:T1:C1:{root}", "message_id": "m1", "author": "U1"}
        write_audit(data, AuditRecord(at=f"{day}T10:00:00.000+00:00", kind=kind, **about, details=details))


def test_the_audit_is_told_by_time_kind_and_thread(tmp_path):
    audit(tmp_path, "2026-01-01", ("skill", "1.1"))
    audit(tmp_path, "2026-01-02", ("approval", "1.1"), ("feedback", "2.2"))

    def found(*arguments):
        records = document(tmp_path, "audit", "--since", "2026-01-01", *arguments)["records"]
        return [(record["kind"], record["thread_id"][-3:]) for record in records]

    assert found() == [("skill", "1.1"), ("approval", "1.1"), ("feedback", "2.2")]
    assert found("--since", "2026-01-02") == [("approval", "1.1"), ("feedback", "2.2")]
    assert found("--kind", "skill", "--kind", "feedback") == [("skill", "1.1"), ("feedback", "2.2")]
    assert found("--thread", "slack:T1:C1:2.2") == [("feedback", "2.2")]
    shown = threadfast(tmp_path, "audit", "--since", "2026-01-01").stdout
    assert "tool shell, about ls �[2J [masked] in slack:T1:C1:1.1 message m1" in shown


def test_the_last_verdict_of_each_person_on_each_answer_counts(tmp_path):
    verdicts = [("U1", "1", "up"), ("U1", "1", "down"), ("U2", "1", "up"), ("U1", "2", "up")]
    for author, answer, verdict in verdicts:
        about = {"thread_id": "discord:G:C:1", "message_id": answer, "author": author}
        record = AuditRecord(
            at="2026-01-01T10:00:00.000+00:00", kind="feedback", **about, details={"verdict": verdict}
        )
        write_audit(tmp_path, record)
    assert "Feedback: 2 up, 1 down." in threadfast(tmp_path, "audit", "--since", "2026-01-01").stdout


def test_a_kind_that_this_version_does_not_know_is_told_all_the_same(tmp_path):
    record = AuditRecord(at="2026-01-01T10:00:00.000+00:00", kind="novelty", details={"attempt": 2})
    write_audit(tmp_path, record)
    assert "novelty  -    attempt 2" in threadfast(tmp_path, "audit", "--since", "2026-01-01").stdout


def test_damaged_lines_of_the_audit_are_counted(tmp_path):
    audit(tmp_path, "2026-01-01", ("skill", "1.1"), ("approval", "1.1"))
    file = tmp_path / "audit" / "2026-01-01.jsonl"
    file.write_bytes(file.read_bytes().replace(b"skill", b"skull", 1))
    result = threadfast(tmp_path, "audit", "--since", "2026-01-01")
    assert "1 damaged line was left out." in result.stderr
    assert "approval" in result.stdout
    assert document(tmp_path, "audit", "--since", "2026-01-01")["damaged_lines"] == 1


def test_what_is_added_to_the_audit_is_followed_into_the_next_day(tmp_path):
    audit(tmp_path, "2026-01-01", ("skill", "1.1"))
    more = iter([("01", "approval"), ("02", "feedback"), ("02", "approval"), ("03", "feedback")])

    class Enough(Exception):
        pass

    def wait():
        if (line := next(more, None)) is None:
            raise Enough
        day, kind = line
        audit(tmp_path, f"2026-01-{day}", (kind, "1.1"))

    found = []
    with pytest.raises(Enough):
        for one in audit_trail.read_audit(FileReader(tmp_path), audit_trail.Filter(), Damage(), wait):
            found.append(f"{one.at[8:10]} {one.kind}")
    assert found == ["01 skill", "01 approval", "02 feedback", "02 approval", "03 feedback"]


def test_limits_are_told_beside_what_is_spent(tmp_path):
    now = datetime.now(UTC)
    call = Call("slack:T1:C1:1.1", "U1", "t", "anthropic/large", now.date().isoformat())
    paid = Commit(call=call, usage=Usage(10, 5), micros=12_500_000)
    anyio.run(spend, tmp_path, Time(now.isoformat()[:19]), paid)
    limits = {one["scope"]: one for one in document(tmp_path, "usage")["limits"]}
    assert limits["day"] == {"scope": "day", "spent": 12.5, "reserved": 0.0, "limit": 50.0}
    assert limits["month"]["limit"] is None
    rows = [line.split() for line in threadfast(tmp_path, "usage").stdout.splitlines()]
    assert ["everyone", "today", "$12.50", "-", "$50.00", "25%"] in rows
    assert ["Total", "1", "10", "-", "5", "$12.50"] in rows


def test_dead_letters_tell_what_became_of_them(tmp_path):
    dead = [entry for n in (1, 2, 3) for entry in exchange(n, outcome="dead_letter")]
    again = [replace(entry, message_id="m1~1") for entry in exchange(9)]
    write_thread(tmp_path, "1.1", *dead, *exchange(4), *again)
    waits = Received(thread_id="slack:T1:C1:1.1", message_id="m2~1", author=Author("U1"), text="two")
    write_records(tmp_path / "journal.jsonl", record_adapter(), waits)
    found = document(tmp_path, "dead-letters", "list")["dead_letters"]
    states = {letter["message_id"]: letter["again"] for letter in found}
    assert states == {"m1": "answered", "m2": "in line", "m3": ""}


def test_a_resubmission_is_told_to_programs(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1, outcome="dead_letter"))
    expected = {"message_id": "m1", "resubmitted_as": "m1~1"}
    assert document(tmp_path, "dead-letters", "resubmit", "m1") == expected


def test_nothing_is_said_when_the_reader_has_seen_enough(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "bot", "threads", "export", "1.1", "--data", str(tmp_path)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert done.stderr == b""


def test_plain_columns_line_up_whatever_people_are_called(capsys):
    print_table(
        [Column("A"), Column("B", right=True), Column("C", on_terminal=True)],
        [["日本", "1", "x"], ["a\nb", "22", "x"]],
    )
    assert capsys.readouterr().out == "A      B\n日本   1\na b   22\n"


@pytest.mark.parametrize(
    "command",
    [["status"], ["threads", "list"], ["why", "m1"], ["usage"], ["audit"], ["dead-letters", "list"]],
    ids=lambda words: words[0],
)
def test_a_typo_in_the_settings_keeps_nobody_from_looking_at_a_named_folder(tmp_path, command):
    data, settings = tmp_path / "data", tmp_path / "settings.json"
    write_thread(data, "1.1", *exchange(1))
    good = threadfast(data, *command)
    settings.write_text('{"max_tokens": "many"}')
    bad = threadfast(data, *command, "--settings", str(settings))
    assert bad.exit_code == good.exit_code
    assert "settings: max_tokens: " in bad.stderr
    assert "Only text that looks like a secret is masked" in bad.stderr
    assert bad.stdout == good.stdout
    without = CliRunner().invoke(main, [*command, "--settings", str(settings)])
    assert without.exit_code == 78
