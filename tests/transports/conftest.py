from functools import partial

import pytest

from tests.transports.bot import PROXIES
from transports.discord.api.gateway_link import GatewayLink


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Libraries take a proxy from the environment for loopback too."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def guilds_come_at_once(monkeypatch):
    """The library waits 2 s after the last guild for another one; the fake tells them all at once."""
    monkeypatch.setattr("transports.discord.client.GatewayLink", partial(GatewayLink, guilds_s=0.1))
