"""What commands cost the bot in memory, however many there are and however much they write.

A process without privileges each, so that nothing but the commands makes it grow.
"""

import json

import pytest

from bot.extensions.shell.sandbox.selection import AT_ONCE
from tests.unprivileged import Unreachable, run_unprivileged


def measure(*arguments):
    try:
        done = run_unprivileged("-m", "benchmarks.tools", *arguments, timeout_s=180)
    except Unreachable as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("size", ["100_000_000", pytest.param("1_000_000_000", marks=pytest.mark.slow)])
def test_a_flood_of_output_costs_less_than_ten_megabytes(size):
    assert measure("flood", size)["grown"] < 10_000_000


@pytest.mark.parametrize("commands", ["50", pytest.param("200", marks=pytest.mark.slow)])
def test_of_many_commands_few_run_at_once_and_memory_stays_bounded(commands):
    figures = measure("many", commands)
    assert 1 <= figures["at_once"] <= AT_ONCE
    assert figures["grown"] < 100_000_000
