import random

import pytest

from tests.sim.loop import SimLoop


@pytest.fixture
def anyio_backend():
    return "asyncio", {"loop_factory": lambda: SimLoop(random.Random(1), 1000.0)}


async def serve(bot, platform, *messages):
    """Hand messages over, each when the one before it has its outcome."""
    for message in messages:
        await bot.orchestrator.receive(message)
        await platform.settled(message.id)
