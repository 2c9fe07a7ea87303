"""The program without an extension: its folder is deleted from a copy, and the rest does what it did."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bot.config.built_in_extensions import BUILT_IN

ROOT = Path(__file__).parents[3]
SETTINGS = {
    "anthropic": ({"providers": {"anthropic": {"kind": "anthropic"}}}, "providers.anthropic.kind: anthropic"),
    "openai": ({"model": "ollama/llama"}, "model: openai-compatible"),
    "browser": ({"tools": {"enabled": ["files", "browser"]}}, "tools.enabled[1]: browser"),
    "events": ({"events": {}}, "events"),
    "files": ({"tools": {"enabled": ["web_fetch", "files"]}}, "tools.enabled[1]: files"),
    "jobs": ({"tools": {"enabled": ["files", "jobs"]}}, "tools.enabled[1]: jobs"),
    "mcp": ({"mcp_servers": {"shop": {"command": "shop"}}}, "mcp_servers"),
    "postgres": ({"store": {"kind": "postgres"}}, "store.kind: postgres"),
    "shell": ({"tools": {"enabled": ["files", "shell"]}}, "tools.enabled[1]: shell"),
    "skills": ({"tools": {"enabled": ["files", "skills"]}}, "tools.enabled[1]: skills"),
    "tool_hook": ({"tools": {"hook": {"command": ["true"]}}}, "tools.hook"),
    "voice": ({"transcription": {"model": "openai/whisper-1"}}, "transcription"),
    "web_search": ({"tools": {"web_search": {}}}, "tools.web_search"),
    "discord": ({"transports": {"discord": {}}}, "transports.discord"),
    "matrix": ({"transports": {"matrix": {}}}, "transports.matrix"),
    "slack": ({"transports": {"slack": {}, "sales": {"kind": "slack"}}}, "transports.slack"),
    "web": ({"transports": {"web": {}}}, "transports.web"),
    "schedule": ({"tools": {"enabled": ["files", "schedule"]}}, "tools.enabled[1]: schedule"),
    "thread_search": (
        {"tools": {"enabled": ["files", "thread_search"]}},
        "tools.enabled[1]: thread_search",
    ),
    "tracing": ({"observe": {"otlp_endpoint": "http://127.0.0.1:4318"}}, "observe.otlp_endpoint"),
}
"""Settings that need each extension, and the key that is named without it."""
COMMANDS = {command for one in BUILT_IN.values() for command in one.commands}


@pytest.fixture
def without(tmp_path):
    """Return a command in a copy of the program, of links, that lacks extensions."""

    def copied(*names: str):
        for package in ("bot", "threads", "transports"):
            shutil.copytree(ROOT / package, tmp_path / package, copy_function=os.symlink)
        for name in names:
            shutil.rmtree(tmp_path.joinpath(*BUILT_IN[name].package.split(".")))

        def run(*words: str, said: str = "", **settings: object) -> subprocess.CompletedProcess[str]:
            path = tmp_path / "settings.json"
            path.write_text(json.dumps({"data": "data", "model": "offline/demo", **settings}))
            own = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "THREADFAST_SETTINGS": str(path)}
            command, environ = [sys.executable, "-m", "bot", *words], {**os.environ, **own}
            return subprocess.run(
                command, input=said, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=120
            )

        return run

    return copied


CORE = {"check"}
"""What the core can do as well, in fewer words."""


def commands_of(run):
    return {*re.findall("^  ([a-z-]+) ", run("--help").stdout, re.MULTILINE)}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_an_extension_that_is_not_here_says_whose_it_is(without, name):
    settings, key = SETTINGS[name]
    run = without(name)
    checked = run("check", **settings)
    assert checked.returncode == 78
    assert f"{key} belongs to the extension {name}, which is not installed here" in checked.stderr
    listed = run("extensions", "list")
    assert f"{name}  (" not in listed.stdout
    assert listed.stdout.count("\n  brings ") == len(BUILT_IN) - 1


@pytest.mark.parametrize(
    ("name", "kind"), [("anthropic", "bedrock"), ("anthropic", "vertex"), ("openai", "azure")]
)
def test_a_platform_of_models_goes_with_its_extension(without, name, kind):
    checked = without(name)("check", providers={"ours": {"kind": kind}})
    assert f"providers.ours.kind: {kind} belongs to the extension {name}" in checked.stderr


@pytest.mark.parametrize("name", BUILT_IN)
def test_without_one_extension_the_rest_starts_and_chats(without, name):
    said = without(name)("chat", said="hello\n")
    assert (said.returncode, "I am offline/demo" in said.stdout) == (0, True), said.stderr


def test_the_network_of_commands_goes_with_the_shell(without):
    checked = without("shell")("check", tools={"network": {"allow": ["git.example.org"]}})
    assert checked.returncode == 78
    assert "tools.network belongs to the extension shell, which is not installed here" in checked.stderr


def test_without_playbooks_a_play_is_an_unknown_command(without):
    run = without("playbooks")
    assert run("check").returncode == 0
    said = run("chat", said="/play odd\n/new\n/help\n")
    assert "I do not know /play." in said.stdout
    assert "/play" not in said.stdout.partition("/help lists what I know.")[2]
    for words in (["doctor", "--offline"], ["init", "--yes"]):
        assert run(*words).returncode == 0


@pytest.mark.parametrize("name", [name for name, one in BUILT_IN.items() if one.commands])
def test_a_command_of_an_extension_that_is_not_here_is_unknown_and_those_of_others_stay(without, name):
    run, own = without(name), {*BUILT_IN[name].commands} - CORE
    for command in own:
        said = run(command)
        assert said.returncode == 2
        assert said.stderr.splitlines()[-1].startswith(f"Error: No such command '{command}'.")
    assert COMMANDS - commands_of(run) == own


def test_without_any_extension_the_program_starts_chats_and_explains_itself(without, tmp_path):
    run = without(*BUILT_IN)
    said = run("chat", said="list\n")
    assert said.returncode == 0, said.stderr
    assert "I have no tool `list_files` here" in said.stdout
    assert [*tmp_path.glob("data/threads/console/*/log.jsonl")]
    assert COMMANDS & commands_of(run) == CORE
    settings, key = SETTINGS["mcp"]
    assert (
        f"{key} belongs to the extension mcp, which is not installed here" in run("check", **settings).stderr
    )
