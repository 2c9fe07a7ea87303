from functools import partial

import pytest

from tests.transports.matrix.person import person


@pytest.fixture
def somebody(synapse, tmp_path):
    """Make somebody new for a block."""
    return partial(person, folder=tmp_path, synapse=synapse)


@pytest.fixture
async def ann(somebody):
    async with somebody("ann") as ann:
        yield ann


@pytest.fixture
async def bob(somebody):
    async with somebody("bob") as bob:
        yield bob
