"""Memory that only the collector can free does not wait for the collector's own thresholds."""

import gc
import weakref

import anyio

from bot.observe.supervision import COLLECT_EVERY_S, collect_garbage
from tests.sim.loop import virtual_time
from threads.background import background_tasks

anyio_backend = virtual_time


class Node:
    """Refers to itself, as the messages of an SDK do to their parts."""

    def __init__(self) -> None:
        self.itself = self


async def test_a_cycle_is_freed_within_a_minute():
    enabled = gc.isenabled()
    gc.disable()  # no other collection frees it
    try:
        async with background_tasks() as tasks:
            tasks.start_soon(collect_garbage)
            await anyio.sleep(1)
            node = weakref.ref(Node())
            await anyio.sleep(COLLECT_EVERY_S - 2)
            assert node() is not None
            await anyio.sleep(2)
            assert node() is None
    finally:
        if enabled:
            gc.enable()
