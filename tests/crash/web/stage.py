"""The crash run's stage on the page."""

from __future__ import annotations

from pathlib import Path

from tests.crash.run import Rounds, Stage
from tests.crash.web.platform import STEPS, Place


def _place(folder: Path, rounds: Rounds) -> Place:
    presses = rounds.questions == "answered"
    return Place(folder, rounds.seed, rounds.threads, pause_s=rounds.pause_s, presses=presses)


WEB = Stage("web", _place, "tests.crash.web.child", "tests.judge.web", STEPS, mend_s=8.0)
