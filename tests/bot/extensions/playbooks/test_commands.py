"""What `/play` answers at once."""

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import pytest

from bot.extensions.playbooks.commands import PlayCommands
from bot.extensions.playbooks.run_state import RunsFile
from bot.extensions.playbooks.runs import Runs
from tests.bot.extensions.playbooks.test_transitions import run_of, stage
from tests.world import ANN, T1, inline, message, state_file


async def no_return(run):
    """Forget nothing: the run is not parked."""


@pytest.mark.parametrize("words", ["skip", "retry a", "stop"])
async def test_a_command_counts_while_a_turn_takes_the_run_up(tmp_path, words):
    state = state_file(tmp_path / "playbooks.json", RunsFile())
    runs = Runs(state, lambda: datetime(2026, 11, 25, 12, tzinfo=UTC))
    commands = PlayCommands(None, runs, None, no_return, inline, lambda _: True, 10)
    run = await runs.take_up(run_of(stage("a"), stage("b"), thread=str(T1)))
    with runs.playing(T1):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runs.take_up, run)
            await anyio.lowlevel.checkpoint()  # it writes now
            reply = await commands.command(words, replace(message(2), thread=T1, author=ANN))
    left = runs.of(T1)
    assert (left.redirect or left.state) == {"skip": "skip a", "retry a": "retry a", "stop": "failed"}[words]
    assert reply
