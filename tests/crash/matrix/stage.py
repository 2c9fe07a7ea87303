"""The crash run's stage in Matrix."""

from __future__ import annotations

from pathlib import Path

from tests.crash import run
from tests.crash.matrix.link import STEPS
from tests.crash.matrix.platform import Place
from tests.crash.run import Rounds, Stage


def _place(folder: Path, rounds: Rounds) -> run.Place:
    how = {"seed": rounds.seed, "late_s": rounds.late_s, "crowd": rounds.threads, "pause_s": rounds.pause_s}
    return Place(folder, **how, forgets=rounds.forgets)


MATRIX = Stage("matrix", _place, "tests.crash.matrix.child", "tests.judge.matrix", STEPS, mend_s=8.0)
