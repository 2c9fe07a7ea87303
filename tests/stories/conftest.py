import pytest

from tests.world import Platform


@pytest.fixture
def platform() -> Platform:
    return Platform()
