import pytest

from bot.config.built_in_extensions import BUILT_IN
from tests.transports.bot import PROXIES


@pytest.fixture(params=["slack", "discord"])
async def chat(request):
    """A platform's fake and what people see in it; "web" is a third one."""
    from tests.transports.chats import chat_of

    async with chat_of(request.param) as chat:
        yield chat


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Libraries take a proxy from the environment for loopback too."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def guilds_come_at_once(monkeypatch):
    """The library waits 2 s after the last guild for another one; the fake tells them all at once."""
    if BUILT_IN["discord"].is_here:
        monkeypatch.setattr(f"{BUILT_IN['discord'].package}.api.gateway_link.GUILDS_S", 0.1)
