from importlib import import_module

import pytest

from bot.config.built_in_extensions import BUILT_IN
from tests.patience import WITHIN_S
from tests.transports.bot import PROXIES
from tests.transports.matrix.synapse import IN_MATRIX, Synapse


@pytest.fixture(scope="session")
def synapse(tmp_path_factory):
    """One homeserver for all tests of a worker: each has its own people and rooms.

    It is not asynchronous: all tests of the worker would have one event loop then.
    """
    synapse = Synapse(tmp_path_factory.mktemp("synapse"))
    synapse.begin()
    yield synapse
    synapse.end()


@pytest.fixture
def homeserver(request):
    """The homeserver where the test is told of Matrix."""
    return (
        request.getfixturevalue("synapse")
        if request.node.callspec.params.get("chat") in IN_MATRIX.values
        else None
    )


@pytest.fixture(params=["slack", "discord"])
async def chat(request, tmp_path, homeserver, monkeypatch):
    """A platform's fake and what people see in it; "web" is a third one, and Matrix a fourth.

    A channel of Slack takes more than one post a second here.
    """
    if homeserver:
        from tests.transports.matrix.chat import InMatrix

        async with InMatrix(homeserver, tmp_path).opened() as chat:
            yield chat
        return
    from tests.transports.chats import chat_of

    if BUILT_IN["slack"].is_here:
        limits = import_module(f"{BUILT_IN['slack'].package}.api.rate_limits")
        monkeypatch.setattr(limits, "CHANNEL", limits.TIER_4)
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


@pytest.fixture(autouse=True)
def soon_looked_for(request, monkeypatch):
    """What failed is tried or looked for again after a second, when a real platform is ready; a fake is at once."""
    if "shared" not in request.path.parts:
        monkeypatch.setattr("transports.shared.delivery.outbox.LOOK_PAUSES_S", (0.1, 0.3))
        monkeypatch.setattr("transports.shared.delivery.rewrite.PAUSES_S", (0.1, 0.2))


@pytest.fixture(autouse=True)
def slack_has_time(monkeypatch):
    """A machine under load is not a Slack that does not answer: names stay unknown for a minute then."""
    if BUILT_IN["slack"].is_here:
        package = BUILT_IN["slack"].package
        for module in (
            "client",
            "events.asked_message",
            "events.catch_up",
            "events.intake",
            "events.lookups",
        ):
            monkeypatch.setattr(f"{package}.{module}.NAMED_WITHIN_S", WITHIN_S)
        monkeypatch.setattr(f"{package}.events.asked_message.READ_WITHIN_S", WITHIN_S)
