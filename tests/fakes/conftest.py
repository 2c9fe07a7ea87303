import pytest

from tests.fakes.discord import FakeDiscord
from tests.fakes.discord.sdk import Seen, connected, logged_in


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """The SDK reads these even for loopback, and knows no NO_PROXY."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SKIP_SLACK_SDK_WARNING", "1")


@pytest.fixture
async def fake():
    async with FakeDiscord() as fake:
        yield fake


@pytest.fixture
async def client(fake):
    """discord.py, connected to the gateway of `fake`."""
    client = Seen()
    async with connected(client, fake):
        yield client


@pytest.fixture
async def api(fake):
    """discord.py, logged in to the REST API of `fake`."""
    async with logged_in(fake) as client:
        yield client
