import pytest

from tests.world import Platform
from threads.store.thread_files import ThreadFiles


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
def reading(monkeypatch):
    """Return a function that gives the bot a reader of files."""

    def read(reader):
        monkeypatch.setattr("bot.wiring.core.ThreadFiles", lambda *given: ThreadFiles(*given[:3], reader))
        return reader

    return read
