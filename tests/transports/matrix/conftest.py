from functools import partial

import pytest

from tests.transports.matrix.person import person
from tests.transports.matrix.synapse import Synapse


@pytest.fixture(scope="session")
async def synapse(tmp_path_factory):
    """One homeserver for all tests of a worker: each has its own people and rooms."""
    async with Synapse(tmp_path_factory.mktemp("synapse")) as synapse:
        yield synapse


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
