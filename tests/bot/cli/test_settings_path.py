"""Which settings a command uses: those named, those here, the person's own, the service's."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.host.invocation import find_settings


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Return a function that writes settings with a name of their own; the working directory and the home are empty."""
    for name in ("THREADFAST_SETTINGS", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for folder in ("here", "home"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def write(*parts: str) -> Path:
        path = tmp_path.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"name": parts[0]}))
        return path

    return write


def test_without_any_file_the_defaults_count(places):
    assert find_settings(None) is None


def test_a_persons_own_settings_count_where_there_are_none_here(places, monkeypatch, tmp_path):
    own = places("home", ".config", "threadfast", "settings.json")
    assert find_settings(None) == own
    xdg = places("xdg", "threadfast", "settings.json")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert find_settings(None) == xdg
    places("here", "settings.json")
    assert find_settings(None) == Path("settings.json")


def test_a_relative_config_home_is_ignored_as_its_specification_says(places, monkeypatch):
    own = places("home", ".config", "threadfast", "settings.json")
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    assert find_settings(None) == own


def test_the_environment_names_the_settings_of_every_command_and_the_option_wins(places, monkeypatch):
    places("here", "settings.json")
    monkeypatch.setenv("THREADFAST_SETTINGS", str(places("named", "bad.json")))
    Path("../named/bad.json").write_text('{"name": 1}')
    refused = CliRunner().invoke(main, ["check"])
    assert (refused.exit_code, "bad.json" in refused.output) == (78, True)
    named = CliRunner().invoke(main, ["check", "--settings", "settings.json"])
    assert "bad.json" not in named.output
