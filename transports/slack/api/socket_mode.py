"""Receiving from Slack: Socket Mode through Bolt, every envelope acknowledged when it is durable and not before.

`SocketModeLink.run` keeps one socket up. A socket that asks to be replaced stays open until its successor is open, so
a refresh has no gap; the SDK closes first. A socket that breaks ends the run, and the supervisor runs it again.

Bolt reads and dispatches each request, and our middleware takes it before any other. So no ``auth.test`` is made, no
type of event can be forgotten, and an event costs a quarter of what Bolt's own chain costs.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import JsonValue
from slack_bolt.adapter.socket_mode.async_internals import run_async_bolt_app, send_async_response
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.middleware.async_middleware import AsyncMiddleware
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient

from threads.errors import BotError, StoreUnavailable, TransportFatal
from transports.shared.link.supervisor import LinkDown
from transports.slack.api.websocket import Frame, Renew, Socket

log = logging.getLogger(__name__)

Kind = Literal["event", "action", "command", "other"]
Take = Callable[[Kind, Mapping[str, JsonValue]], Awaitable[Mapping[str, JsonValue] | None]]
"""Makes one payload durable, and returns what its acknowledgement says; what raises is not acknowledged."""

AT_ONCE = 256
"""How many envelopes may be in the taking. What comes beyond stays unread in the socket, in order, and Slack waits.

Slack sends 30,000 events an hour and workspace at most (8 a second), so this many wait only when the disk hangs.
"""
DRAIN_S = 3.0
"""How long a socket that is let go waits for what it took: Slack's own budget for an acknowledgement."""
HELLO_WITHIN_S = 5.0


class SocketModeLink:
    """The stream of events of one app. ``silent_s``: replace a socket on which nothing happened for so long.

    ``heard`` is told of each look that finds that something came.
    ``settled_s``: a socket that asks to be replaced sooner is a failed one, or two would replace each other all day.
    """

    def __init__(
        self,
        *,
        app_token: str,
        client: AsyncWebClient,
        take: Take,
        heard: Callable[[], None] = lambda: None,
        ping_interval: float = 5.0,
        silent_s: float = 600.0,
        open_within_s: float = 30.0,
        settled_s: float = 10.0,
    ) -> None:
        self._app_token, self._client, self._heard = app_token.strip(), client, heard
        self._ping_interval, self._silent_s = ping_interval, silent_s
        self._open_within_s, self._settled_s = open_within_s, settled_s
        self._app = AsyncApp(
            name="threadfast",
            token=client.token or "unused",  # or Bolt reads it from the environment; nothing is sent with it
            before_authorize=_Taking(take),
            request_verification_enabled=False,  # the two that would come before ours are for HTTP
            ssl_check_enabled=False,
        )
        self._open = 0

    async def run(self, connected: Callable[[], None]) -> None:
        """Receive until the link is down: raises `LinkDown` then, or `TransportFatal`; leaves nothing open.

        *connected* is called for every socket that comes up, before anything of it is taken: events may have been
        missed before it, and what comes first must not pass for the next one after what came last.
        """
        async with anyio.create_task_group() as sockets:
            end = await self._succession(sockets, connected)
        raise end

    async def _succession(self, sockets: TaskGroup, connected: Callable[[], None]) -> BotError:
        """Open one socket after another, each before the last is let go; return why there is none any more."""
        current: Socket | None = None
        while True:
            try:
                fresh: Socket = await sockets.start(self._hold, connected)
            except (LinkDown, TransportFatal) as error:
                return error
            finally:
                if current:
                    current.released.set()
            current = fresh
            end = await current.over()
            if not isinstance(end, Renew) or anyio.current_time() - current.opened_at < self._settled_s:
                current.released.set()
                return end
            log.info("link.renewed: %s", end)

    async def _hold(self, connected: Callable[[], None], *, task_status: TaskStatus[Socket]) -> None:
        """Open a socket, keep it until it is released, finish what it took, close it."""
        room, told = anyio.Semaphore(AT_ONCE, fast_acquire=True), anyio.Event()

        async def envelope(frame: Frame) -> None:
            await told.wait()
            await room.acquire()
            taking.start_soon(self._answer, socket, frame, room)

        socket = Socket(
            app_token=self._app_token,
            web_client=self._client,
            ping_interval=self._ping_interval,
            silent_s=self._silent_s,
            hello=self._greeted,
            envelope=envelope,
            heard=self._heard,
        )
        self._open += 1
        try:
            await self._connect(socket)
            async with anyio.create_task_group() as taking:
                async with anyio.create_task_group() as reading:
                    reading.start_soon(socket.receive_messages)
                    reading.start_soon(socket.watch)
                    with anyio.move_on_after(HELLO_WITHIN_S):  # or it is refused, in the first frame
                        await socket.spoken.wait()
                    if socket.ended is None:
                        connected()
                        told.set()
                    task_status.started(socket)
                    await socket.released.wait()
                    reading.cancel_scope.cancel()
                taking.cancel_scope.deadline = anyio.current_time() + DRAIN_S
        finally:
            self._open -= 1
            await socket.close()

    async def _connect(self, socket: Socket) -> None:
        try:
            with anyio.fail_after(self._open_within_s):
                await socket.connect()
        except TimeoutError as error:
            raise LinkDown(f"no connection within {self._open_within_s:.0f} s") from error

    async def _answer(self, socket: Socket, frame: Frame, room: anyio.Semaphore) -> None:
        """Have one envelope taken, and acknowledge it if it was."""
        try:
            await send_async_response(socket, *await self._dispatch(frame), start_time=0)
        except ConnectionError as error:
            log.info("link.ack_lost: the event will come again: %s", error)
            # What came before it broke may still wait to be read, and nobody looks for its end before that.
            socket.end(Renew(f"no acknowledgement can be sent: {error}"))
        finally:
            room.release()

    async def _dispatch(self, frame: Frame) -> tuple[SocketModeRequest, BoltResponse]:
        """Run an envelope through Bolt. What Bolt cannot even read is acknowledged: no repeat would read better."""
        try:
            request = SocketModeRequest.from_dict(frame)
            if request is not None:
                return request, await run_async_bolt_app(self._app, request)
        except Exception:  # the boundary of a transport: Bolt may stumble over an odd payload in any way
            log.warning(
                "link.unreadable: an envelope that Bolt cannot read: %s", sorted(frame), exc_info=True
            )
        else:
            log.warning("link.unreadable: an envelope without a payload: %s", sorted(frame))
        return SocketModeRequest("unread", str(frame["envelope_id"]), {}), BoltResponse(status=200)

    def _greeted(self, frame: Frame) -> None:
        count = frame.get("num_connections")
        log.debug("link.hello: %s links", count)
        if isinstance(count, int) and count > self._open:
            log.warning(
                "link.shared: the app has %d links and %d of them ours: another copy of the bot may be taking events",
                count,
                self._open,
            )


class _Taking(AsyncMiddleware):
    """The first and last middleware: it takes every request, and answers for it."""

    def __init__(self, take: Take) -> None:
        self._take = take

    async def async_process(
        self,
        *,
        req: AsyncBoltRequest,
        resp: BoltResponse,  # noqa: ARG002  Bolt's signature
        next: Callable[[], Awaitable[BoltResponse]],  # noqa: A002, ARG002
    ) -> BoltResponse:
        try:
            answer = await self._take(kind_of(req.body), req.body)
        except StoreUnavailable as error:
            log.warning("link.not_acknowledged: it will come again: %s", error)
            return BoltResponse(status=503)
        except Exception:  # the boundary of a transport: what could not be taken comes again
            log.exception("link.not_acknowledged: it will come again")
            return BoltResponse(status=503)
        return BoltResponse(status=200, body="" if answer is None else dict(answer))


def kind_of(body: Mapping[str, JsonValue]) -> Kind:
    match body:
        case {"type": "event_callback"}:
            return "event"
        case {"type": "block_actions"}:
            return "action"
        case {"command": str()}:
            return "command"
        case _:
            return "other"
