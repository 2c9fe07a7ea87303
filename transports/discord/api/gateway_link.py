"""Receiving from Discord: one session of the gateway, in a client of its own.

The library resumes a session well: missed events are replayed. It handles badly a first connect that fails, pauses of
up to 17 minutes, sockets that die in silence, and a lost session. These end the run; the supervisor starts the next.

| event                                                    | consequence                                      |
|----------------------------------------------------------|--------------------------------------------------|
| READY                                                    | `Hooks.on_session`, *connected*; later `on_ready` |
| a cut, op 7, close 1000, 1001, 4000, 4009, no heartbeat  | the library resumes; RESUMED: *connected*        |
| not resumed within `DOWN_S`                              | `LinkDown`                                       |
| op 9: the session is gone                                | `LinkDown`                                       |
| no frame for `SILENT_S`                                  | `LinkDown`                                       |
| no login, no first connect                               | `LinkDown`, or what the refusal means            |
| 401, 4004, 4010 to 4014                                  | `TransportFatal`, with what to do                |

Gateway: https://docs.discord.com/developers/events/gateway
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import anyio
import discord
from anyio.abc import TaskGroup
from discord.gateway import DiscordWebSocket
from yarl import URL

from threads.errors import TransportFatal
from transports.discord.api.api_errors import Banned, DiscordRefused, bad_token, explain
from transports.discord.api.gateway import Gateway, Hooks
from transports.discord.api.invalid_requests import InvalidRequests
from transports.discord.api.options import Options
from transports.discord.api.sdk import DISCORD, InteractionCalls, interactions_through
from transports.shared.link.supervisor import LinkDown

log = logging.getLogger(__name__)

GATEWAY = DiscordWebSocket.DEFAULT_GATEWAY

LOGIN_WITHIN_S = 60.0
SESSIONS_PER_HOUR = 40
"""Discord resets the token of a bot that begins 1,000 sessions in a day."""
HOUR_S = 3600.0

SILENT_S, DOWN_S, LOOK_S = 120.0, 30.0, 1.0
"""A session ends after so long without a frame, or without a connection; both are looked at every second."""
GUILDS_S, HEARTBEAT_S = 2.0, 60.0
"""How long the library waits for the next guild, and for the acknowledgement of a heartbeat."""

PORTAL = "at discord.com/developers/applications"
FATAL = {
    4010: "Discord refuses the shard: this program connects as one and knows of no others",
    4011: "the bot is in more servers than one connection may serve: take it out of some, below 2,500",
    4012: "Discord does not speak this version of the gateway any more: update this program",
    4013: "Discord does not know the intents that were asked for: update this program",
    4014: f'Discord does not let the bot read messages: tick "Message Content Intent" under Bot {PORTAL}',
}
"""Close codes that only a person can resolve, with what to do."""


class GatewayLink:
    """The gateway of one bot. ``invalid_requests`` is that of its `Rest`: a ban holds for both.

    ``on_frame`` is called each second in which a frame came.
    """

    def __init__(
        self,
        options: Options,
        make_hooks: Callable[[], Hooks],
        invalid_requests: InvalidRequests,
        on_frame: Callable[[], None],
    ) -> None:
        self._token, self._url = options.token, URL(options.gateway_url) if options.gateway_url else GATEWAY
        self._api_url, self._reactions = options.api_base_url or DISCORD, bool(options.ask_reaction)
        self._make_hooks, self._invalid_requests, self._on_frame = make_hooks, invalid_requests, on_frame
        self._sessions: deque[float] = deque(maxlen=SESSIONS_PER_HOUR)

    async def run(self, connected: Callable[[], None]) -> None:
        """Receive until the session is over: raises `LinkDown`, `PostFailed` or `TransportFatal`; leaves nothing.

        *connected* is called before anything of the session is taken, and each time that it was resumed.
        """
        self._admit()
        with interactions_through(InteractionCalls(self._api_url)):
            await self._run(connected)

    async def _run(self, connected: Callable[[], None]) -> None:
        async with anyio.create_task_group() as tasks:
            client = Gateway(
                self._api_url,
                self._url,
                self._invalid_requests,
                self._make_hooks(),
                connected,
                lambda: self._sessions.append(anyio.current_time()),
                tasks,
                guild_ready_timeout=GUILDS_S,
                heartbeat_timeout=HEARTBEAT_S,
                reactions=self._reactions,
            )
            try:
                end = await self._run_client(client, tasks)
            finally:
                await client.shut_down()
                tasks.cancel_scope.cancel()
        raise end

    def _admit(self) -> None:
        """Raise `LinkDown` if a connection now would do harm."""
        now = anyio.current_time()
        if wait := self._invalid_requests.wait(now, urgent=True):
            raise LinkDown(self._invalid_requests.trouble(now), retry_after=wait)
        if len(self._sessions) == SESSIONS_PER_HOUR and (wait := self._sessions[0] + HOUR_S - now) > 0:
            raise LinkDown(f"{SESSIONS_PER_HOUR} sessions in an hour", retry_after=wait)

    async def _run_client(self, client: Gateway, tasks: TaskGroup) -> Exception:
        """Run *client* and return why it ended."""
        try:
            with anyio.fail_after(LOGIN_WITHIN_S):
                await client.login(self._token)
        except Exception as error:  # noqa: BLE001  the boundary of a transport, as below
            return self._not_logged_in(error)
        try:
            with anyio.CancelScope() as life:
                tasks.start_soon(self._watch, client, life)
                await client.connect()
        except Exception as error:  # noqa: BLE001  the boundary of a transport: any error ends the session
            return _explain_end(error, client)
        return client.failure or LinkDown("the gateway closed the session")

    def _not_logged_in(self, error: Exception) -> Exception:
        failed = explain("login", error, maybe_posted=False)
        if isinstance(failed, DiscordRefused) and failed.kind == "token":
            return bad_token()
        if isinstance(failed, Banned):
            failed.retry_after = self._invalid_requests.banned(anyio.current_time())
        return failed

    async def _watch(self, client: Gateway, life: anyio.CancelScope) -> None:
        """End the session when it is down or silent. Counts looks, not seconds: a blocked loop makes no looks."""
        quiet = down = 0
        while client.failure is None:
            await anyio.sleep(LOOK_S)
            quiet = 0 if client.frame_seen else quiet + 1
            down = 0 if client.is_up else down + 1
            if client.frame_seen:
                self._on_frame()
            client.frame_seen = False
            if down * LOOK_S >= DOWN_S:
                client.failure = LinkDown(f"no session for {DOWN_S:.0f} s")
            elif quiet * LOOK_S >= SILENT_S:
                client.failure = LinkDown(f"no frame for {SILENT_S:.0f} s")
        life.cancel()


def _explain_end(error: Exception, client: Gateway) -> Exception:
    match error:
        case discord.PrivilegedIntentsRequired():
            return TransportFatal(FATAL[4014])
        case discord.ConnectionClosed(code=4004):
            return bad_token()
        case discord.ConnectionClosed(code=code):
            closed = f"the gateway closed the session with {code}"
            return TransportFatal(FATAL[code]) if code in FATAL else LinkDown(closed)
        case AttributeError() if not client.session_began:  # discord.py#10520
            return LinkDown("the gateway broke the connection off before a session began")
        case _:
            return error
