import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from bot.admin.cli import main
from bot.budget.budgets import Call, Commit
from bot.host.terminal import Column, print_table
from bot.observe.audit import AuditRecord
from bot.ports.model import Usage
from bot.reports import audit_trail
from bot.reports.files import FileReader
from bot.reports.line_reader import Damage
from tests.bot.admin.cli.data_folders import (
    document,
    exchange,
    threadfast,
    write_audit,
    write_records,
    write_thread,
)
from tests.bot.admin.cli.test_usage_command import spend
from tests.bot.budget.ledgers import Time
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
    for author, answer, verdict in [
        ("U1", "1", "up"),
        ("U1", "1", "down"),
        ("U2", "1", "up"),
        ("U1", "2", "up"),
    ]:
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
    assert document(tmp_path, "dead-letters", "resubmit", "m1") == {
        "message_id": "m1",
        "resubmitted_as": "m1~1",
    }


def test_the_check_says_what_to_write_about_a_server_on_this_machine_of_unknown_price(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gateway = {"base_url": "http://127.0.0.1:4000/v1"}
    given = {"model": "mine/large", "providers": {"mine": gateway}}
    meanings = {"hard": "a hard budget refuses it", "soft": "is not counted"}
    for mode, meaning in meanings.items():
        (tmp_path / "settings.json").write_text(json.dumps({**given, "budget": {"mode": mode}}))
        result = CliRunner().invoke(main, ["check"])
        assert result.exit_code == 0
        assert "the price of mine/large is not known" in result.stderr
        assert meaning in result.stderr
        assert '"free": true under providers.mine' in result.stderr
    gateway["free"] = True
    (tmp_path / "settings.json").write_text(json.dumps(given))
    assert "price" not in CliRunner().invoke(main, ["check"]).stderr


def test_the_check_shows_what_the_tool_profile_means(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tools = {"profile": "read-only", "policy": {"shell(make *)": "ask"}}
    (tmp_path / "settings.json").write_text(json.dumps({"model": "offline/demo", "tools": tools}))
    shown = CliRunner().invoke(main, ["check"]).stdout
    assert "Tools (profile read-only): allow: reading; deny: writing, commands, MCP; ask: the web." in shown
    assert "Rules before these: shell(make *) ask." in shown


def test_the_check_of_the_settings_is_told_to_programs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (0, True)
    (tmp_path / "settings.json").write_text('{"budget": {"mode": "x"}}')
    result = CliRunner().invoke(main, ["check", "--json"])
    assert result.exit_code == 78
    assert "budget.mode" in json.loads(result.stdout)["faults"][0]


def test_nothing_is_said_when_the_reader_has_seen_enough(tmp_path):
    write_thread(tmp_path, "1.1", *exchange(1))
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "bot", "threads", "export", "1.1", "--data", str(tmp_path)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert done.stderr == b""


def test_a_list_of_nothing_says_so(tmp_path):
    (tmp_path / "settings.json").write_text('{"model": "offline/demo"}')
    done = CliRunner().invoke(main, ["mcp", "list", "--settings", str(tmp_path / "settings.json")])
    assert done.output == "There are none: name one under `mcp_servers` in the settings.\n"


def test_the_version_has_a_short_option_too():
    assert CliRunner().invoke(main, ["-V"]).output == CliRunner().invoke(main, ["--version"]).output


def test_plain_columns_line_up_whatever_people_are_called(capsys):
    print_table(
        [Column("A"), Column("B", right=True), Column("C", on_terminal=True)],
        [["日本", "1", "x"], ["a\nb", "22", "x"]],
    )
    assert capsys.readouterr().out == "A      B\n日本   1\na b   22\n"


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["threads", "list"],
        ["why", "m1"],
        ["usage"],
        ["audit"],
        ["dead-letters", "list"],
    ],
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


def test_commands_that_serve_or_write_take_no_faulty_settings(tmp_path):
    (tmp_path / "settings.json").write_text('{"max_tokens": "many"}')
    for word in ("run", "chat"):
        result = threadfast(tmp_path / "data", word, "--settings", str(tmp_path / "settings.json"))
        assert result.exit_code == 78
    assert not (tmp_path / "data").exists()


SCOPED = {
    "model": "offline/demo",
    "access": {"admins": ["U9"]},
    "tools": {"policy": {"shell(rm*)": "deny"}},
    "scopes": {
        "slack:T1": {"system": "You are Acme's bot.", "max_tokens": 100},
        "slack:T1:C1": {"system": "You are\non call.", "budget": {"limit_usd": {"day": 3}}},
        "user:U1": {"access": {"users": []}},
    },
}


def test_the_check_prints_what_holds_in_a_channel_and_which_scope_decided_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.json").write_text(json.dumps(SCOPED))
    result = CliRunner().invoke(main, ["check", "--for", "slack:T1:C1"])
    assert result.exit_code == 0
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in result.stdout.splitlines()[2:]}
    assert rows["model"] == "offline/demo for everybody"
    assert rows["max_tokens"] == "100 slack:T1"
    assert rows["system"] == "You are on call. slack:T1:C1"
    assert rows["temperature"] == "null default"
    assert rows["tools.policy.shell(rm*)"] == "deny for everybody"
    assert "budget.limit_usd.day (of slack:T1:C1 alone)  3.0" in result.stdout
    assert "Scopes: slack:T1, slack:T1:C1." in result.stdout
    elsewhere = CliRunner().invoke(main, ["check", "--for", "discord:G1"]).stdout
    assert "No scope covers it" in elsewhere


def test_the_check_says_for_a_person_whether_they_are_served(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.json").write_text(json.dumps(SCOPED))
    barred = CliRunner().invoke(main, ["check", "--for", "slack:T1:C1", "--person", "U1"]).stdout
    assert "for U1, who is not served" in barred
    told = CliRunner().invoke(main, ["check", "--for", "slack:T1:C1", "--person", "U9", "--json"])
    found = json.loads(told.stdout)
    assert (found["served"], found["admin"], found["person"]) == (True, True, "U9")
    assert {"key": "max_tokens", "value": 100, "by": "slack:T1"} in found["rows"]


def test_a_model_that_is_found_at_the_start_is_not_told_as_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, ["check", "--for", "slack:T1"]).stdout
    assert re.search("model +null +found at the start", found)


def test_the_example_of_the_documents_runs_without_a_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    page = (Path(__file__).parents[4] / "docs" / "operations.md").read_text()
    example, *_ = [block for block in re.findall("```json\n(.*?)```", page, re.DOTALL) if '"scopes"' in block]
    (tmp_path / "settings.json").write_text(example)
    result = CliRunner().invoke(main, ["check", "--for", "slack:T1:C1", "--person", "U3"])
    assert result.exit_code == 0, result.output
    assert "U3, who is not served" in result.stdout


@pytest.mark.parametrize("words", [["--for", "C1"], ["--for", "user:U1"], ["--person", "U1"]])
def test_the_check_says_how_a_place_is_written(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check", *words])
    assert result.exit_code == 2
    assert "slack:TEAM:CHANNEL" in result.stderr or "--for" in result.stderr


def test_faults_of_scopes_are_told_all_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {
        "model": "nowhere/x",
        "sistem": "",
        "tools": {"policy": {"sh ell(": "ask"}, "enabled": ["shel"], "mcp_servers": ["githup"]},
        "budget": {"limit_usd": {"month": 3}},
    }
    given = {"mcp_servers": {"github": {"command": "x"}}, "scopes": {"slack:T1": scope, "C1": {}}}
    (tmp_path / "settings.json").write_text(json.dumps(given))
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 78
    for fault in (
        'scopes.slack:T1.model: no provider is called "nowhere"',
        'scopes.slack:T1.sistem: unknown key; the nearest known one is "system"',
        "scopes.slack:T1.tools.policy: 'sh ell(' must be",
        "scopes.slack:T1.tools.enabled[0]: ",
        'scopes.slack:T1.tools.mcp_servers[0]: no MCP server is called "githup"; the nearest known one is "github"',
        "scopes.slack:T1.budget.limit_usd.month: unknown key; there are",
        'scopes.C1: must be a transport, as "slack"',
    ):
        assert fault in result.stderr


def test_the_key_of_a_scopes_model_has_to_be_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given = {"model": "offline/demo", "scopes": {"slack:T1": {"model": "openai/gpt-6.1-terra"}}}
    (tmp_path / "settings.json").write_text(json.dumps(given))
    result = CliRunner().invoke(main, ["check"])
    assert result.exit_code == 78
    assert "providers.openai.api_key" in result.stderr


def test_a_way_out_that_cannot_be_used_ends_a_start_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALL_PROXY", "socks4://127.0.0.1:1080")
    (tmp_path / "settings.json").write_text('{"model": "offline/demo", "ca_file": "ours.pem"}')
    for words in (["check"], ["ask", "hello"], ["chat"]):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 78
        assert "ALL_PROXY: I cannot use this proxy. Set it to http://HOST:PORT" in result.stderr
        assert f"ca_file: {tmp_path}/ours.pem cannot be read (No such file or directory)" in result.stderr
    doctor = CliRunner().invoke(main, ["doctor", "--offline"]).stdout
    assert doctor.count("The bot does not start (exit code 78).") == 2
    (tmp_path / "settings.json").write_text('{"model": "offline/demo"}')
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:1080/")
    assert CliRunner().invoke(main, ["check"]).exit_code == 0
