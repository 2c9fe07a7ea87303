from functools import partial

import pytest

from transports.discord.api.gateway_link import GatewayLink


@pytest.fixture(autouse=True)
def _guilds_come_at_once(monkeypatch):
    """The library waits 2 s after the last guild for another one; the fake tells them all at once."""
    monkeypatch.setattr("transports.discord.client.GatewayLink", partial(GatewayLink, guilds_s=0.1))
