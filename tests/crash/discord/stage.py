"""The crash run's stage in Discord."""

from __future__ import annotations

from pathlib import Path

from tests.crash import run
from tests.crash.discord.platform import STEPS, Place, Threads
from tests.crash.run import Rounds, Stage


def _place(folder: Path, rounds: Rounds) -> run.Place:
    how = {"seed": rounds.seed, "late_s": rounds.late_s, "crowd": rounds.threads, "pause_s": rounds.pause_s}
    if not rounds.within_s:
        return Place(folder, **how, forgets=rounds.forgets)
    return Threads(folder, **how, presses=rounds.questions == "answered", rate_scale=1)


DISCORD = Stage("discord", _place, "tests.crash.discord.child", "tests.judge.discord", STEPS, mend_s=8.0)
