"""`threadfast playbooks try`: a playbook from end to end with the offline model, in a data folder of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pydantic_core import to_json

from bot.config.settings import Settings
from bot.extensions.playbooks.definition import Playbook
from bot.extensions.playbooks.folder import FOLDER
from bot.extensions.playbooks.run_state import RunsFile
from bot.host.invocation import serve
from bot.observe.logs import configure_logging
from transports.console import Console, OneQuestion

OFFLINE = "offline/demo"
THREAD = "try"


async def try_playbook(playbook: Playbook, words: str) -> int:
    """Play a playbook with these words, and return 0 if it is done, 1 if it ended otherwise.

    No account, key or network is used. Each question gets a yes, nothing waits, and all models are the offline one.
    """
    with tempfile.TemporaryDirectory(prefix="threadfast-try-") as folder:
        data = Path(folder)
        written = data / FOLDER / f"{playbook.name}.yaml"
        written.parent.mkdir(mode=0o700)
        written.write_bytes(to_json(_offline(playbook)))  # JSON is YAML
        written.chmod(0o600)
        question = OneQuestion(f"/play {playbook.name} {words}".strip(), THREAD, yes=True)
        console = Console(session="try", attached=data / "attached", question=question)
        configure_logging("error", "text", sys.stderr, secrets=())
        settings = Settings.model_validate_json(
            json.dumps({"data": folder, "model": OFFLINE, "tools": {"enabled": ["files", "shell", "memory"]}})
        )
        await serve(settings, console)
        runs = RunsFile.model_validate_json((data / "playbooks.json").read_bytes()).runs
        return 0 if all(run.state == "done" for run in runs.values()) else 1


def _offline(playbook: Playbook) -> dict[str, object]:
    """Return the playbook without models of its own and without pauses, as its file has it."""
    stages = [
        stage.model_copy(
            update={
                "act": stage.act.model_copy(update={"model": None}),
                "retry": stage.retry.model_copy(update={"backoff_s": 0.0}),
            }
        )
        for stage in playbook.stages
    ]
    return playbook.model_copy(update={"stages": tuple(stages)}).model_dump(mode="json", by_alias=True)
