"""`threadfast playbooks`: what is there, what is wrong with it, and what it does without a key."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.extensions.playbooks.folder import examples


def tried(*arguments, data):
    """Run `playbooks try` as a process of its own: it writes to real descriptors."""
    command = [sys.executable, "-m", "bot", "playbooks", "try", *arguments, "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=data)


NAMES = sorted(file_name.rpartition(".")[0] for file_name in examples())


def run(*arguments, data):
    return CliRunner().invoke(main, ["playbooks", *arguments, "--data", str(data)])


def test_the_examples_are_added_once_listed_and_valid(tmp_path):
    assert "There are none yet" in run("list", data=tmp_path).output
    for name in NAMES:
        added = run("add", name, data=tmp_path)
        assert (added.exit_code, f"`/play {name}` plays it" in added.output) == (0, True)
    assert (tmp_path / "playbooks").stat().st_mode & 0o777 == 0o700
    again = run("add", "triage", data=tmp_path)
    assert (again.exit_code, "exists already; nothing was changed" in again.output) == (1, True)
    listed = json.loads(run("list", "--json", data=tmp_path).output)
    assert [one["name"] for one in listed] == NAMES
    assert run("check", data=tmp_path).output == "3 playbooks are valid.\n"
    assert run("add", "nothing", data=tmp_path).output.startswith("There is no example nothing. There are: ")
    assert run("add", data=tmp_path).output.startswith("onboard: ")


def test_faults_are_told_with_their_path_by_both_checks(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "playbooks"
    folder.mkdir(parents=True)
    file = folder / "bad.yaml"
    file.write_text("name: bad\ndescription: x\nstages:\n  - {name: a, act: {promt: x}}\n")
    checked = run("check", data=tmp_path / "data")
    assert checked.exit_code == 78
    assert 'bad.yaml: stage a: act.promt: unknown key; the nearest known one is "prompt"' in checked.output
    assert run("check", str(file), data=tmp_path).exit_code == 78
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("THREADFAST_SETTINGS", raising=False)
    (tmp_path / "settings.json").write_text('{"model": "offline/demo"}')
    whole = CliRunner().invoke(main, ["check"])
    assert whole.exit_code == 78
    assert "playbooks: bad.yaml: stage a: act.prompt: is required" in whole.output


def test_what_a_playbook_names_and_the_settings_do_not_have_is_a_fault_of_both_checks(tmp_path, monkeypatch):
    (tmp_path / "playbooks").mkdir()
    file = tmp_path / "playbooks" / "p.yaml"
    file.write_text("name: p\ndescription: x\nstages:\n  - {name: a, act: {prompt: x, tools: [red_file]}}\n")
    fault = 'p.yaml: stage a: act.tools[0]: there is no tool "red_file"; the nearest known one is "read_file"'
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("THREADFAST_SETTINGS", raising=False)
    (tmp_path / "settings.json").write_text('{"model": "offline/demo", "data": "."}')
    for command in (["check"], ["playbooks", "check"], ["playbooks", "check", str(file)]):
        checked = CliRunner().invoke(main, command)
        assert (checked.exit_code, fault in checked.output) == (78, True), command


def test_the_schema_of_a_playbook_is_published():
    schema = json.loads(CliRunner().invoke(main, ["schema", "--playbook"]).output)
    assert schema["title"] == "Threadfast playbook"
    assert set(schema["properties"]) == {"name", "description", "limits", "stages"}


@pytest.mark.parametrize("name", NAMES)
def test_each_example_is_played_to_its_end_without_a_key(name, tmp_path):
    done = tried(name, "the", "site", "is", "down", data=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"**{name}**: done")
    assert "→ Yes" in done.stderr
    assert list(tmp_path.iterdir()) == [], "the data folder is left alone"


def test_a_playbook_that_does_not_get_to_its_end_says_so_with_its_exit_code(tmp_path):
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "mine.yaml").write_text(
        "name: mine\ndescription: x\nstages:\n"
        "  - {name: a, act: {prompt: Do it., model: openai/gpt-x}, assert: {checks: [{file: gone}]}}\n"
    )
    ended = tried("mine", data=tmp_path)
    assert ended.returncode == 1
    assert ended.stdout.startswith("**mine**: ended")
    assert run("try", "nothing", data=tmp_path).exit_code == 1
