"""A loopback Slack: Web API and Socket Mode on one port, after Slack's documents and measurements, not after our code.

    async with FakeSlack() as slack:                       # inside any asyncio (anyio) test, real sockets
        client = AsyncWebClient(slack.bot_token, base_url=slack.api_base_url)
        SocketModeClient(app_token=slack.app_token, web_client=...)      # apps.connections.open gives the ws address
        await slack.until(lambda: slack.sockets.links)     # woken by every change, 10 s at most
        said = await slack.say("U1", "C1", "<@UBOT> hello")     # both twins were acknowledged
        [question, answer] = slack.thread("C1", said.ts)

There: team T1, bot UBOT/BBOT, app A1, people U1 U2 U3 with their DMs D1 D2 D3, channels C1 C2; more with
``slack.user(...)`` and ``slack.channel("C3", kind="private", member=False, archived=True)``.

People: ``say`` ``bot_says`` ``edit`` ``delete`` ``unfurl`` ``press`` ``command`` ``shortcut`` ``react`` ``stop``
``open_home`` ``join`` ``event`` ``redeliver`` ``rate_limit_events``; each returns at once, ``await`` it for the ack.
Seen: ``thread`` ``message(ts)`` ``posts()`` ``ephemerals`` ``pings`` ``unfurls`` (per message too) ``status``
``session`` ``prompts`` ``files`` ``responses`` ``downloads``.
Counted: ``calls`` ``calls_to(method)`` ``limited`` ``impatient`` ``connections`` ``acked`` ``sockets.deliveries``.
Faults: ``fail("chat.postMessage", Cut(applied=True), RateLimited(2), forever=False, when=lambda args: ...)``,
``gate(method)`` then ``await gate.reached()`` and ``gate.open()``, ``heal()``, ``revoke()``, ``scopes.discard(...)``.
Links: ``sockets.links[0].reset() .freeze() .silence() .disconnect(reason)``, ``await link.close()``,
``sockets.refuse = True``; ``FakeSlack(ack_budget=, redeliver_after=, offline=)``.
Limits: ``FakeSlack(rate_limits=True, rate_scale=10)``. ``FakeSlack(echo=False)`` sends no events of own posts.
Time: ``clock`` (spans) and ``wall`` (ts) are injected; waits for acks and redeliveries are the loop's.

A bug of the fake itself is raised when it is left. Unset HTTP(S)_PROXY in tests: the SDK reads them even for loopback.
"""

from tests.fakes.slack.deliveries import Delivery
from tests.fakes.slack.faults import ApiError, Cut, Fault, Garbage, Gate, Html, RateLimited, Slow, Stall
from tests.fakes.slack.link import Link
from tests.fakes.slack.people import People, Said
from tests.fakes.slack.records import Call, Channel, Ephemeral, File, Message, Session, Stream, User
from tests.fakes.slack.server import APP_TOKEN, BOT_TOKEN, SCOPES, FakeSlack
from tests.fakes.slack.sockets import Sockets

__all__ = [
    "APP_TOKEN",
    "BOT_TOKEN",
    "SCOPES",
    "ApiError",
    "Call",
    "Channel",
    "Cut",
    "Delivery",
    "Ephemeral",
    "FakeSlack",
    "Fault",
    "File",
    "Garbage",
    "Gate",
    "Html",
    "Link",
    "Message",
    "People",
    "RateLimited",
    "Said",
    "Session",
    "Slow",
    "Sockets",
    "Stall",
    "Stream",
    "User",
]
