"""Run seeds and say which promise one breaks."""

from __future__ import annotations

import gc
import hashlib
import traceback
from dataclasses import dataclass

from tests.judge.simulation import judge

from .world import World


@dataclass(frozen=True, slots=True)
class Result:
    """What a seed came to. ``faults`` are broken promises; ``trace`` is every operation on the world."""

    seed: int
    faults: list[str]
    trace: list[str]
    crashes: int
    messages: int
    calls: int
    summaries: int
    questions: int
    stacked: bool
    plays: int

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode("utf-8", "replace")).hexdigest()


def run_seed(seed: int) -> Result:
    world = World(seed)
    gc.disable()  # a collection in the middle would end tasks in an order that no seed decides
    try:
        world.run()
        faults = judge(world.disk.files(), world.record)
    except Exception as error:  # noqa: BLE001 - whatever ends a run is its result
        where = "".join(traceback.format_exception(error)[-12:])
        faults = [*world.record.violations, f"the process ended: {error!r}\n{where}"]
    finally:
        gc.enable()
    record = world.record
    return Result(
        seed,
        faults,
        record.trace,
        crashes=len(record.deaths),
        messages=len(record.sent),
        calls=record.calls,
        summaries=record.summaries,
        questions=sum("?" in post.key for post in record.posts),
        stacked=world.stack is not None,
        plays=len(record.runs),
    )
