"""Thousands of lives of the real bot in a world that fails: see `tests/sim`.

A failure prints its seed; ``python -m tests.sim --from SEED --seeds 1 --trace`` shows every step of it.
"""

from __future__ import annotations

import re

import pytest

from tests.sim.mutants import MUTANTS
from tests.sim.run import run_seed

SEEDS, MORE = 100, 1600
BLOCK = 50
CAUGHT_WITHIN = 1_000

CAUGHT_BY = {
    "duplicate acknowledged early": 87,
    "acknowledged before fsync": 12,
    "no outbox": 7,
    "torn tail kept": 68,
    "renamed without fsync": 23,
    "reservation not awaited": 30,
    "reservations of the dead forgotten": 147,
    "failures cost nothing": 75,
    "anybody decides": 10,
    "silent failover": 24,
    "deletes before the turn only": 59,
    "page without keys": 60,
    "late answers": 91,
    "border not awaited": 15,
    "run begun anew": 632,
    "visits without a bound": 66,
    "attempts without a bound": 48,
    "returns without a bound": 98,
    "parked for ever": 29,
    "money anew in each turn": 52,
    "money of a stage ignored": 51,
    "takes what is owed": 10,
    "forgets ids": 8,
}
"""Seeds that catch the rarer ones, tried first. After a change of the bot another seed may do: the test prints it."""


@pytest.mark.parametrize(
    "first",
    [*range(0, SEEDS, BLOCK), *(pytest.param(n, marks=pytest.mark.slow) for n in range(SEEDS, MORE, BLOCK))],
)
def test_every_acknowledged_message_ends_in_one_visible_outcome(first):
    for seed in range(first, first + BLOCK):
        result = run_seed(seed)
        assert not result.faults, f"SEED={seed}\n" + "\n".join(result.faults)


def test_the_same_seed_gives_the_same_run_step_by_step():
    for seed in range(10):
        once, again = run_seed(seed), run_seed(seed)
        assert once.trace == again.trace, f"SEED={seed}"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_protocol_is_caught(name, capsys):
    mutant, broken = MUTANTS[name]
    with mutant():
        for seed in (CAUGHT_BY.get(name, 0), *range(CAUGHT_WITHIN)):
            found = [fault for fault in run_seed(seed).faults if re.search(broken, fault)]
            if found:
                with capsys.disabled():
                    print(f"\n{name}: caught by seed {seed}: {found[0][:120]}")
                return
    pytest.fail(f"{name}: not caught within {CAUGHT_WITHIN} seeds")
