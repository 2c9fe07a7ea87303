import pytest

from tests.transports.bot import PROXIES


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Libraries take a proxy from the environment for loopback too."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
