"""Receiving from Slack by Socket Mode: every envelope is acknowledged when it is durable and not before.

`SocketModeLink.run` keeps one socket up. A socket that asks to be replaced stays open until its successor is open, so
a refresh has no gap; the SDK closes first. A socket that breaks ends the run, and the supervisor runs it again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import JsonValue
from slack_sdk.web.async_client import AsyncWebClient

from threads.errors import BotError, StoreUnavailable, TransportFatal
from transports.shared.link.supervisor import LinkDown
from transports.slack.api.websocket import Frame, Renew, Socket

log = logging.getLogger(__name__)

Kind = Literal["event", "action", "command", "shortcut", "other"]
Take = Callable[[Kind, Mapping[str, JsonValue]], Awaitable[Mapping[str, JsonValue] | None]]
"""Makes one payload durable and returns the body of its acknowledgement. If it raises, nothing is acknowledged."""

MAX_CONCURRENT = 256
"""Envelopes that are handled at a time; the rest stays unread in the socket. Slack sends at most 8 a second."""
DRAIN_S = 3.0
"""How long a released socket waits for open envelopes: Slack's deadline for an acknowledgement."""
HELLO_WITHIN_S = 5.0
OPEN_WITHIN_S = 30.0
SETTLED_S = 10.0
"""A socket that asks to be replaced sooner has failed, or two would replace each other all day."""

LINKS_EACH = 2
"""Links of another worker: its next one comes before its last is closed."""


class SocketModeLink:
    """The events of one app. A socket is replaced after ``silent_s`` without an event.

    ``heard`` is called by each look that finds a new frame. ``workers`` returns how many processes serve the app.
    """

    def __init__(
        self,
        *,
        app_token: str,
        client: AsyncWebClient,
        take: Take,
        heard: Callable[[], None] = lambda: None,
        workers: Callable[[], int] = lambda: 1,
        ping_interval: float = 5.0,
        silent_s: float = 600.0,
    ) -> None:
        self._app_token, self._client = app_token.strip(), client
        self._take, self._heard, self._workers = take, heard, workers
        self._ping_interval, self._silent_s = ping_interval, silent_s
        self._open = 0

    async def run(self, connected: Callable[[], None]) -> None:
        """Receive until the link is down, then raise `LinkDown` or `TransportFatal`. Leaves nothing open.

        *connected* is called for every new socket, before its first event: events before it may be missed.
        """
        async with anyio.create_task_group() as sockets:
            end = await self._succession(sockets, connected)
        raise end

    async def _succession(self, sockets: TaskGroup, connected: Callable[[], None]) -> BotError:
        """Open one socket after another, each before the last is released; return why the last one ended."""
        current: Socket | None = None
        while True:
            try:
                fresh: Socket = await sockets.start(self._run_socket, connected)
            except (LinkDown, TransportFatal) as error:
                return error
            finally:
                if current:
                    current.released.set()
            current = fresh
            end = await current.over()
            if not isinstance(end, Renew) or anyio.current_time() - current.opened_at < SETTLED_S:
                current.released.set()
                return end
            log.info("link.renewed: %s", end)

    async def _run_socket(self, connected: Callable[[], None], *, task_status: TaskStatus[Socket]) -> None:
        """Open a socket, hold it until it is released, finish its envelopes, close it."""
        slots, announced = anyio.Semaphore(MAX_CONCURRENT, fast_acquire=True), anyio.Event()

        async def envelope(frame: Frame) -> None:
            if not announced.is_set():
                await announced.wait()
            await slots.acquire()
            taking.start_soon(self._answer, socket, frame, slots)

        socket = Socket(
            app_token=self._app_token,
            web_client=self._client,
            ping_interval=self._ping_interval,
            silent_s=self._silent_s,
            hello=self._check_hello,
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
                        await socket.greeted.wait()
                    if socket.ended is None:
                        connected()
                        announced.set()
                    task_status.started(socket)
                    await socket.released.wait()
                    reading.cancel_scope.cancel()
                taking.cancel_scope.deadline = anyio.current_time() + DRAIN_S
        finally:
            self._open -= 1
            await socket.close()

    async def _connect(self, socket: Socket) -> None:
        try:
            with anyio.fail_after(OPEN_WITHIN_S):
                await socket.connect()
        except TimeoutError as error:
            raise LinkDown(f"no connection within {OPEN_WITHIN_S:.0f} s") from error

    async def _answer(self, socket: Socket, frame: Frame, slots: anyio.Semaphore) -> None:
        """Handle one envelope, and acknowledge it if that worked."""
        try:
            if acknowledgement := await self._acknowledgement(frame):
                await socket.send_message(json.dumps(acknowledgement))
        except ConnectionError as error:
            log.info("link.ack_lost: the event will come again: %s", error)
            # Events from before it broke may still wait to be read.
            socket.end(Renew(f"no acknowledgement can be sent: {error}"))
        finally:
            slots.release()

    async def _acknowledgement(self, frame: Frame) -> Frame | None:
        """Have an envelope taken. Return what acknowledges it, None if it has to come again."""
        payload, acknowledgement = frame.get("payload"), {"envelope_id": frame["envelope_id"]}
        if not isinstance(payload, dict):  # a repeat would not help
            log.warning("link.unreadable: an envelope without a payload: %s", sorted(frame))
            return acknowledgement
        try:
            answer = await self._take(kind_of(payload), payload)
        except StoreUnavailable as error:
            log.warning("link.not_acknowledged: it will come again: %s", error)
            return None
        except Exception:  # the boundary of a transport: what could not be taken comes again
            log.exception("link.not_acknowledged: it will come again")
            return None
        return acknowledgement if answer is None else {**acknowledgement, "payload": dict(answer)}

    def _check_hello(self, frame: Frame) -> None:
        count = frame.get("num_connections")
        log.debug("link.hello: %s links", count)
        ours = self._open + LINKS_EACH * (self._workers() - 1)
        if isinstance(count, int) and count > ours:
            log.warning(
                "link.shared: the app has %d links and %d of them ours: another copy of the bot may be taking events",
                count,
                ours,
            )


def kind_of(body: Mapping[str, JsonValue]) -> Kind:
    match body:
        case {"type": "event_callback"}:
            return "event"
        case {"type": "block_actions"}:
            return "action"
        case {"type": "message_action"}:
            return "shortcut"
        case {"command": str()}:
            return "command"
        case _:
            return "other"
