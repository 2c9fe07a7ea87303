"""The real process asked to stop, and killed while it does, in turns with plain kills: people notice nothing of it."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.crash.discord.stage import DISCORD
from tests.crash.run import Rounds, crash_run
from tests.crash.slack.stage import SLACK
from tests.crash.web.stage import WEB

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.parametrize("stage", [WEB, SLACK, DISCORD], ids=lambda stage: stage.name)
async def test_stops_and_kills_in_turns_lose_nothing_and_answer_nothing_twice(tmp_path, stage):
    report = await crash_run(tmp_path, Rounds(8, seed=5, threads=8, stops=True), replace(stage, mend_s=3.0))
    assert report.violations == []
    assert {0, -signal.SIGKILL} == set(report.exits)
