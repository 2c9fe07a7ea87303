"""`threadfast init` in this process: its questions are answered from a list, and local servers are named by the test."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio.to_thread
import click
import pytest
from click.testing import CliRunner, Result

from bot.cli import main
from bot.extensions.setup import dialog, models
from transports.slack import setup as slack_setup

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "DISCORD_TOKEN")


@dataclass
class Setup:
    """Runs `init` in ``folder``. A test that answers questions has a terminal, the others have none."""

    folder: Path
    patch: pytest.MonkeyPatch
    env: dict[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Path:
        return self.folder / "settings.json"

    async def run(
        self, *arguments: str, answers: list[str] | None = None, piped: str = "", code: int = 0
    ) -> Result:
        """Answer each question with the next of *answers*; one too many asked is Ctrl-C. It ends with *code*."""
        self.asked: list[str] = []

        def prompt(question: str, default: str, *, hidden: bool) -> str:
            self.asked.append(click.unstyle(question))
            if not answers:
                raise click.Abort
            return answers.pop(0) or default

        if answers is not None:
            self.patch.setattr(dialog, "prompt", prompt)
            self.patch.setattr("bot.extensions.setup.command.on_terminal", lambda: True)
        command = ["init", *arguments, "--settings", str(self.settings)]
        environ = dict.fromkeys(KEYS) | self.env
        done = await anyio.to_thread.run_sync(
            lambda: CliRunner().invoke(main, command, input=piped, env=environ)
        )
        assert done.exit_code == code, done.output
        return done

    def document(self) -> dict[str, Any]:
        return json.loads(self.settings.read_text())

    def secrets(self) -> dict[str, str]:
        folder = self.folder / "credentials"
        return {path.name: path.read_text().strip() for path in folder.iterdir()} if folder.is_dir() else {}

    def tree(self) -> dict[str, bytes]:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}


@pytest.fixture
def setup(tmp_path, monkeypatch):
    folder = tmp_path / "bot"
    folder.mkdir()
    monkeypatch.setattr(models, "LOCAL_SERVERS", ())
    # the tests' own process stays as it is
    monkeypatch.setattr("bot.guards.hardening.harden_process", lambda: None)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(slack_setup.click, "launch", lambda _: pytest.fail("a browser was opened"))
    return Setup(folder, monkeypatch)


@pytest.fixture
def as_user():
    """Skip where permissions stop nobody."""
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
