"""Slots are fair: in the order of asking, never more than allowed, never lost."""

from __future__ import annotations

import random

import anyio
import pytest

from tests.sim.loop import SimLoop
from threads.actor.slots import Slots


@pytest.fixture(params=range(5))
def anyio_backend(request):
    return "asyncio", {"loop_factory": lambda: SimLoop(random.Random(request.param), 1000.0)}


async def test_waiting_turns_are_served_in_the_order_of_asking_and_one_person_cannot_hold_all():
    slots, order = Slots(3, 2), []

    async def turn(name, user):
        await slots.acquire(user)
        order.append(name)
        await anyio.sleep(1)
        slots.release(user)

    async with anyio.create_task_group() as tasks:
        for name, user in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("a4", "a"), ("b1", "b"), ("c1", "c")]:
            tasks.start_soon(turn, name, user)
            await anyio.sleep(0.01)
    assert order == ["a1", "a2", "b1", "a3", "a4", "c1"]


async def test_a_cancelled_wait_gives_its_place_back_even_when_it_was_just_granted():
    slots = Slots(1, 1)
    await slots.acquire("a")
    scope = anyio.CancelScope()

    async def wait():
        with scope:
            await slots.acquire("b")
            slots.release("b")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(1)
        slots.release("a")
        scope.cancel()
    with anyio.fail_after(1):
        await slots.acquire("c")
