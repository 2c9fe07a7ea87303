"""Several workers over one simulated database: see `tests/sim/workers.py`.

``python -m tests.sim.workers --seeds 1000`` plays more.
"""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import patch

import pytest

from bot.extensions.postgres.journal import Arrival, PostgresJournal
from tests.sim.database import CHECKS
from tests.sim.workers import run_seed
from threads.journal.records import Received

SEEDS, CAUGHT_WITHIN = 25, 200


@pytest.mark.parametrize("first", [0, *(pytest.param(SEEDS * n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_every_acknowledged_message_is_answered_once_whatever_happens_to_workers_and_server(tmp_path, first):
    for seed in range(first, first + SEEDS):
        run = run_seed(seed, tmp_path)
        assert not run.faults, f"SEED={seed}\n" + "\n".join(run.faults)


def test_the_same_seed_gives_the_same_run(tmp_path):
    for seed in range(3):
        assert run_seed(seed, tmp_path / "once") == run_seed(seed, tmp_path / "again")


async def _unwritten(self, incoming, per_minute):
    arrival = Arrival(Received.of(incoming), per_minute)
    self._stamp(arrival.received)
    self._arrivals.put(arrival)
    return True


MUTANTS = {  # and a seed after which it is soon caught: some are rare
    "records of a thread that was lost are written": (0, CHECKS - {"epoch"}, nullcontext),
    "what a session gave up on is carried out later": (50, CHECKS - {"former"}, nullcontext),
    "a message is acknowledged before the commit": (
        0,
        CHECKS,
        lambda: patch.object(PostgresJournal, "receive", _unwritten),
    ),
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_broken_is_caught(name, tmp_path):
    first, checks, broken = MUTANTS[name]
    with broken():
        for seed in range(first, first + CAUGHT_WITHIN):
            found = run_seed(seed, tmp_path, checks).faults
            # the judge's, and no crash
            if any(not fault.startswith(("start:", "ended:")) for fault in found):
                return
    pytest.fail(f"{name}: not caught in {CAUGHT_WITHIN} seeds from {first}")
