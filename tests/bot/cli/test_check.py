import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.cli import main
from tests.bot.cli.data_folders import threadfast


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


def test_a_list_of_nothing_says_so(tmp_path):
    (tmp_path / "settings.json").write_text('{"model": "offline/demo"}')
    done = CliRunner().invoke(main, ["mcp", "list", "--settings", str(tmp_path / "settings.json")])
    assert done.output == "There are none: name one under `mcp_servers` in the settings.\n"


def test_the_version_has_a_short_option_too():
    assert CliRunner().invoke(main, ["-V"]).output == CliRunner().invoke(main, ["--version"]).output


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
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
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
    (tmp_path / "settings.json").write_text('{"model": "offline/demo"}')
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:1080/")
    assert CliRunner().invoke(main, ["check"]).exit_code == 0
