import pytest

from .approval_harness import Harness


@pytest.fixture
def harness(tmp_path):
    return Harness(tmp_path / "data")
