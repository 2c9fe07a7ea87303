"""One web socket of Slack's Socket Mode, used once: the SDK's, without its own ways of going on.

The SDK's client (slack_sdk 3.47) reconnects badly: it asks for an address once and retries a dead one for ever, it
keeps a link whose peer is gone, and it queues frames and starts tasks without a bound. Here a socket connects once,
and says in ``ended`` why it is of no use any more; `SocketModeLink` opens the next one.

| event                                             | ``ended`` with                                    |
|---------------------------------------------------|---------------------------------------------------|
| disconnect: link_disabled                         | `TransportFatal`                                  |
| disconnect: too_many_websockets                   | `LinkDown`, to be tried again later               |
| disconnect: refresh_requested, warning, any other | `Renew`: the socket works until its successor does |
| no frame but pongs for ``silent_s``               | `Renew`                                           |
| an acknowledgement that cannot be sent            | `Renew`: what came before may still be read       |
| close frame, error, reset                         | `LinkDown`                                        |
| 4 pings in a row without a frame                  | `LinkDown`                                        |
| a frame that is not handled for 30 s              | `LinkDown`: we are stuck                          |

Wire: https://docs.slack.dev/apis/events-api/using-socket-mode/
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Awaitable, Callable

import aiohttp
import anyio
from pydantic import JsonValue
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.web.async_client import AsyncWebClient

from threads.errors import BotError, PostFailed, TransportFatal
from transports.shared.link.supervisor import LinkDown
from transports.slack.api.api_errors import SlackRefused, needs_a_person
from transports.slack.api.web_api import explained

log = logging.getLogger(__name__)

Frame = dict[str, JsonValue]

MISSED_PINGS = 4
LOOKS_PER_PING = 5
"""A look sees a reset before the next ping."""
CLOSE_WITHIN_S = 1.0
"""How long a peer may take to answer our close frame."""
TOO_MANY_S = 30.0
STUCK_S = 30.0


class Renew(LinkDown):
    """The socket should be replaced, and works until then: routine."""


class Socket(SocketModeClient):
    """``hello`` gets Slack's greeting; ``envelope`` is awaited for each envelope before the next frame is read.

    ``heard`` is called by each look that finds a new frame.
    """

    def __init__(
        self,
        *,
        app_token: str,
        web_client: AsyncWebClient,
        ping_interval: float,
        silent_s: float,
        hello: Callable[[Frame], None],
        envelope: Callable[[Frame], Awaitable[None]],
        heard: Callable[[], None],
    ) -> None:
        super().__init__(
            app_token,
            web_client=web_client,
            ping_interval=ping_interval,
            auto_reconnect_enabled=False,
            on_close_listeners=[self._broke],
            on_error_listeners=[self._broke],
        )
        self._silent_s, self._hello, self._envelope, self._heard = silent_s, hello, envelope, heard
        self._frames = 0
        self._last_event_at = self.opened_at = anyio.current_time()
        self._over, self.greeted, self.released = anyio.Event(), anyio.Event(), anyio.Event()
        self.reading = True
        """False while a frame is handled: then the peer is not the slow one."""
        self.ended: BotError | None = None

    async def connect(self) -> None:
        """Connect once, to a fresh address. Raises `LinkDown` or `TransportFatal`."""
        self.wss_uri = await self.issue_new_wss_url()
        try:
            self.current_session = await self.aiohttp_client_session.ws_connect(
                self.wss_uri,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_WITHIN_S),
                autoping=False,  # the SDK's receiver answers pings, and keeps the time of the pongs
                proxy=self.proxy,
                ssl=True if self.web_client.ssl is None else self.web_client.ssl,
            )
        except (aiohttp.ClientError, OSError) as error:
            why = f"{type(error).__name__} {getattr(error, 'status', '')}".rstrip()
            # not chained: the error has the address, with a ticket that opens a socket
            raise LinkDown(f"no socket at the address Slack gave ({why})") from None
        self._last_event_at = self.opened_at = anyio.current_time()

    async def issue_new_wss_url(self) -> str:
        """Ask for an address, which is good for one connection. Raises `LinkDown` or `TransportFatal`."""
        try:
            response = await self.web_client.apps_connections_open(app_token=self.app_token)
        except SlackApiError as error:
            raise _refusal(explained("apps.connections.open", error), self.app_token) from None
        except (aiohttp.ClientError, SlackClientError, OSError) as error:
            raise LinkDown(f"Slack cannot be asked: {type(error).__name__}: {error}") from None
        url = response.get("url")
        if not isinstance(url, str):
            raise LinkDown("Slack gave no address to connect to")
        return url

    async def close(self) -> None:
        """Close everything; the SDK's own leaves the session open when it is cancelled midway."""
        self.closed = True
        with anyio.CancelScope(shield=True):
            if self.current_session is not None:
                await self.current_session.close()
            await self.aiohttp_client_session.close()

    async def is_connected(self) -> bool:
        return self.current_session is not None and not self.current_session.closed

    async def process_messages(self) -> None:
        """Do nothing: frames are handled as they are read."""

    async def enqueue_message(self, message: str) -> None:
        """Handle one text frame; the next one is not read before this returns."""
        self._frames += 1
        self.greeted.set()
        try:
            frame = json.loads(message)
        except ValueError:
            frame = None
        match frame:
            case {"type": "hello"}:
                self._hello(frame)
            case {"type": "disconnect"}:
                self.end(_disconnect(frame.get("reason")))
            case {"envelope_id": str()}:
                self._last_event_at = anyio.current_time()
                self.reading = False
                await self._envelope(frame)
                self.reading = True
            case _:
                log.debug("link.odd_frame: a frame that means nothing to us, %d characters", len(message))

    async def watch(self) -> None:
        """Watch the socket until it ends. Counts pings, not seconds: a blocked loop sends none, so misses none."""
        assert self.current_session is not None
        missed, pings, heard = 0, 0, self._signs
        last = heard
        for look in itertools.count(1):
            await anyio.sleep(self.ping_interval / LOOKS_PER_PING)
            if self.current_session.closed:
                return self.end(LinkDown("the connection broke"))
            quiet_s = anyio.current_time() - self._last_event_at
            if not self.reading and quiet_s > STUCK_S:
                return self.end(LinkDown("what came is not taken any more"))
            if quiet_s > self._silent_s:
                self.end(Renew(f"no event for {self._silent_s:.0f} s: some links die that way"))
            if self._signs != last or not self.reading:
                last = self._signs
                self._heard()
            if look % LOOKS_PER_PING:
                continue
            alive, heard = heard != self._signs or not self.reading, self._signs
            missed = 0 if alive or not pings else missed + 1
            if missed >= MISSED_PINGS:
                return self.end(LinkDown(f"no answer to {missed} pings"))
            pings += 1
            await self._ping(pings)
        return None

    @property
    def _signs(self) -> tuple[int, float | None]:
        return self._frames, self.last_ping_pong_time

    async def _ping(self, number: int) -> None:
        assert self.current_session is not None
        with anyio.move_on_after(self.ping_interval):  # a peer that reads nothing lets the buffer fill up
            try:
                await self.current_session.ping(b"sdk-ping-pong:%d" % number)
            except ConnectionError as error:
                self.end(LinkDown(f"the connection broke: {error}"))

    async def _broke(self, message: aiohttp.WSMessage) -> None:
        self.end(LinkDown(f"Slack closed the socket ({message.type.name} {message.data})"))

    def end(self, why: BotError) -> None:
        """End this socket. The first reason stands: Slack closes a socket that it asked to renew."""
        if self.ended is None:
            self.ended = why
            self._over.set()
            self.greeted.set()

    async def over(self) -> BotError:
        """Wait for the end and return the reason."""
        await self._over.wait()
        assert self.ended is not None
        return self.ended


def _disconnect(reason: JsonValue) -> BotError:
    match reason:
        case "link_disabled":
            return TransportFatal(
                "Socket Mode is switched off for this app: switch it on under Settings, Socket Mode, "
                "at api.slack.com/apps"
            )
        case "too_many_websockets":
            return LinkDown(
                "Slack allows 10 links per app and all are in use: stop the other copies of the bot",
                retry_after=TOO_MANY_S,
            )
        case _:
            return Renew(f"Slack asks for a new link ({str(reason)[:60]})")


def _refusal(failed: PostFailed, app_token: str) -> BotError:
    """Return the link's error for a failed apps.connections.open."""
    if not isinstance(failed, SlackRefused) or not needs_a_person(failed):
        return LinkDown(f"Slack gives no address to connect to: {failed}", retry_after=failed.retry_after)
    form = "" if app_token.startswith("xapp-") else "it must begin with xapp-: "
    return TransportFatal(
        f"Slack refuses the app token ({failed.error}): {form}make a new app-level token with the scope "
        "connections:write under Settings, Basic Information, at api.slack.com/apps"
    )
