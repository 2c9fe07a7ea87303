"""Socket Mode: tickets, links, envelopes, acknowledgements and redeliveries, and how links die.

Each envelope goes to one live link (they take turns). An events_api envelope that is not acknowledged within
``ack_budget`` comes again with a new envelope id and the same event id, after each wait of ``redeliver_after``.
With no link up an attempt is used up ("retry"), or the event waits for a link ("keep"), or is lost ("drop").
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Literal

from aiohttp import WSMsgType, web

from tests.fakes.slack.deliveries import Delivery
from tests.fakes.slack.link import Link
from tests.fakes.slack.records import APP, Json

if TYPE_CHECKING:
    from tests.fakes.slack.server import FakeSlack

Offline = Literal["retry", "keep", "drop"]
MOST_LINKS = 10


class Sockets:
    def __init__(
        self, slack: FakeSlack, *, ack_budget: float, redeliver_after: tuple[float, ...], offline: Offline
    ) -> None:
        self.slack = slack
        self.ack_budget, self.redeliver_after, self.offline = ack_budget, redeliver_after, offline
        self.links: list[Link] = []
        self.opened = 0
        """How many links there ever were."""
        self.refused = 0
        """Handshakes that were refused."""
        self.late = 0
        """Acknowledgements that came after the budget, or twice: they do not count."""
        self.refuse = False
        """Refuse every handshake, whatever the ticket."""
        self.deliveries: list[Delivery] = []
        self.remember = True
        """Keep every delivery in ``deliveries``; a benchmark turns it off."""
        self._tickets: set[str] = set()
        self._outstanding: dict[str, Delivery] = {}
        self._kept: list[Delivery] = []
        self._serial = itertools.count(1)
        self._turn = 0

    # tickets and links

    def ticket(self) -> str:
        ticket = f"t{next(self._serial)}"
        self._tickets.add(ticket)
        return f"{self.slack.url.replace('http', 'ws', 1)}/link?ticket={ticket}&app_id={APP}"

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One websocket, from the handshake to its end."""
        ticket = request.query.get("ticket", "")
        if self.refuse or ticket not in self._tickets:
            self.refused += 1
            self.slack.changed()
            return web.Response(status=403, text="invalid ticket")
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse(autoping=False, autoclose=False, compress=False, timeout=0.2)
        await socket.prepare(request)
        self.opened += 1
        link = Link(self.opened, request, socket)
        if len(self.links) >= MOST_LINKS:
            await socket.send_json({"type": "disconnect", "reason": "too_many_websockets"})
            await socket.close(drain=False)
            return socket
        self.links.append(link)
        link.send(self._hello())
        pump = asyncio.ensure_future(link.pump())
        try:
            self.flush()
            self.slack.changed()
            await self._read(link, socket)
        except ConnectionError:
            pass
        finally:
            pump.cancel()
            self._gone(link)
        return socket

    def _hello(self) -> str:
        debug = {"host": "applink-fake", "build_number": 1, "approximate_connection_time": 18060}
        about = {"app_id": APP}
        return json.dumps(
            {
                "type": "hello",
                "num_connections": len(self.links),
                "connection_info": about,
                "debug_info": debug,
            }
        )

    async def _read(self, link: Link, socket: web.WebSocketResponse) -> None:
        while True:
            message = await socket.receive()
            if message.type in (WSMsgType.CLOSED, WSMsgType.CLOSING, WSMsgType.ERROR):
                return
            if link.frozen:
                if message.type is WSMsgType.CLOSE:
                    await link.hung_up()
                continue
            if message.type is WSMsgType.TEXT:
                link.acks += 1
                self._ack(json.loads(message.data))
            elif message.type is WSMsgType.PING:
                link.pings += 1
                self.slack.changed()
                await socket.pong(message.data)
            elif message.type is WSMsgType.CLOSE:
                await socket.close(drain=False)
                return

    def _gone(self, link: Link) -> None:
        """A link ended: what it had not acknowledged may still be acknowledged on another one."""
        link.gone()
        self.links.remove(link)
        self.slack.changed()

    # envelopes

    def deliver(self, kind: str, payload: Json) -> Delivery:
        delivery = Delivery(kind, payload)
        if self.remember:
            self.deliveries.append(delivery)
        self.send(delivery)
        return delivery

    def send(self, delivery: Delivery) -> None:
        link = self._next_link()
        if link is None:
            self._without_link(delivery)
            return
        envelope = f"{next(self._serial):08x}-fake"
        frame = {
            "envelope_id": envelope,
            "payload": delivery.payload,
            "type": delivery.kind,
            "accepts_response_payload": delivery.kind != "events_api",
        }
        if delivery.kind == "events_api":
            frame["retry_attempt"] = delivery.attempt
            frame["retry_reason"] = delivery.reason
        delivery.envelopes.append(envelope)
        delivery.link, delivery.state = link, "sent"
        delivery.sent_at = self.slack.clock()
        self._outstanding[envelope] = delivery
        if not link.silent:
            link.send(json.dumps(frame))
        delivery.at(asyncio.get_running_loop().call_later(self.ack_budget, self._late, delivery))

    def _next_link(self) -> Link | None:
        if not self.links:
            return None
        self._turn += 1
        return self.links[self._turn % len(self.links)]

    def _without_link(self, delivery: Delivery) -> None:
        if delivery.kind != "events_api" or self.offline == "drop":
            delivery.settle("lost")
        elif self.offline == "keep":
            self._kept.append(delivery)
        else:
            self._again(delivery, "connection_failed")

    def flush(self) -> None:
        kept, self._kept = self._kept, []
        for delivery in kept:
            self.send(delivery)

    def _ack(self, frame: Json) -> None:
        delivery = self._outstanding.pop(frame.get("envelope_id", ""), None)
        if delivery is None:
            self.late += 1
            self.slack.changed()
            return
        delivery.answer = frame.get("payload")
        delivery.acked_at = self.slack.clock()
        delivery.settle("acked")
        self.slack.acked += 1
        self.slack.changed()

    def _late(self, delivery: Delivery) -> None:
        self._outstanding.pop(delivery.envelopes[-1], None)
        self._again(delivery, "timeout")

    def _again(self, delivery: Delivery, reason: str) -> None:
        """The attempt failed: the next one, if there is one."""
        delivery.state = "waiting"
        if delivery.kind != "events_api" or delivery.attempt >= len(self.redeliver_after):
            delivery.settle("lost")
            self.slack.changed()
            return
        wait = self.redeliver_after[delivery.attempt]
        delivery.attempt += 1
        delivery.reason = reason
        delivery.at(asyncio.get_running_loop().call_later(wait, self.send, delivery))

    def stop(self) -> None:
        for delivery in [*self._outstanding.values(), *self.deliveries]:
            if not delivery.acked:
                delivery.settle("lost")
        for link in list(self.links):
            link.reset()
