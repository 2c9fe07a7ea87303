import pytest

from .bot import Bot, UserPlatform


@pytest.fixture
def bot(tmp_path):
    return Bot(tmp_path, UserPlatform())
