"""The gateway: links come and go; hello, identify, resume, heartbeats."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, cast

from aiohttp import WSMsgType, web

from tests.fakes.discord import faults
from tests.fakes.discord.event_delivery import EventDelivery
from tests.fakes.discord.ids import APP, BOT, GUILD, Json
from tests.fakes.discord.link import ACK_OP, HELLO_OP, INVALID_OP, Link
from tests.fakes.discord.records import Call
from tests.fakes.discord.session import MEMBERS, MESSAGE_CONTENT, PRESENCES, Session
from tests.fakes.discord.views import guild_view
from tests.fakes.discord.web import apply_fault, cut
from tests.fakes.faults import Script
from tests.fakes.sockets import connection

if TYPE_CHECKING:
    from tests.fakes.discord.server import FakeDiscord


class Gateway(EventDelivery):
    me = BOT
    heartbeat = 41.25
    token = gateway_url = ""
    privileged = 0
    offline = revoked = False
    script: Script[faults.Fault, Call]

    def __init__(self, *times: Any) -> None:
        super().__init__(*times)
        self.opened = self.identifies = self.resumes = 0
        self.refused = 0
        """Upgrades that a dead gateway refused."""
        self.closes: list[int] = []
        """Codes that clients closed with; 1006 for none."""
        self.dead = False

    @property
    def ready(self) -> int:
        """Links that had READY or RESUMED."""
        return sum(1 for link in self.links if link.ready)

    # a link's life

    async def serve_gateway(self, request: web.Request) -> web.StreamResponse:
        """One websocket, from the upgrade to its end."""
        call = Call("GET /gateway", {}, dict(request.query), {}, "", self.clock(), connection(request))
        self.changed()
        if self.offline:
            return cut(request)
        if self.dead:
            self.refused += 1
            self.changed()
            return web.Response(status=503, text="upstream connect error", content_type="text/plain")
        fault = self.script.take(call.route, call, own=True)
        if isinstance(fault, faults.Gate | faults.Slow):
            await (fault.hold() if isinstance(fault, faults.Gate) else asyncio.sleep(fault.seconds))
        elif fault:
            return await apply_fault(cast("FakeDiscord", self), request, call, fault, web.Response)
        return await self._serve(request)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(autoclose=False, compress=False, timeout=0.2, max_msg_size=0)
        await socket.prepare(request)
        self.opened += 1
        link = Link(self.opened, request, socket, request.query.get("compress", ""))
        link.forget = self._forget
        self.links.append(link)
        link.say(HELLO_OP, {"heartbeat_interval": round(self.heartbeat * 1000), "_trace": []})
        pump = asyncio.ensure_future(link.pump())
        self.changed()
        code = 1006
        try:
            code = await self._read(link, socket)
        except ConnectionError:
            pass
        finally:
            pump.cancel()
            self._gone(link, code)
        return socket

    async def _read(self, link: Link, socket: web.WebSocketResponse) -> int:
        """Read frames until the link ends; return the client's close code."""
        while True:
            message = await socket.receive()
            if link.frozen:
                if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING, WSMsgType.ERROR):
                    await link.hung_up()
                    return int(message.data) if message.type is WSMsgType.CLOSE else 1006
                continue
            match message.type:
                case WSMsgType.TEXT:
                    self._heard(link, message.data)
                    self.changed()
                case WSMsgType.CLOSE:
                    await socket.close(drain=False)
                    return int(message.data or 1005)
                case WSMsgType.CLOSED | WSMsgType.CLOSING | WSMsgType.ERROR:
                    return 1006

    def _gone(self, link: Link, code: int) -> None:
        link.gone()
        self.links.remove(link)
        self.closes.append(code)
        if link.session and link.session.link is link:
            link.session.link = None
            if code in (1000, 1001):
                self._forget(link.session)
        self.changed()

    def _forget(self, session: Session) -> None:
        self.sessions.pop(session.id, None)

    def forget_sessions(self) -> None:
        """No session can be resumed any more; links that are up lose theirs when they go."""
        self.sessions.clear()

    # what clients say

    def _heard(self, link: Link, text: str) -> None:
        try:
            frame = json.loads(text)
        except ValueError:
            link.close_soon(4002)
            return
        match frame.get("op"):
            case 1:
                link.heartbeats += 1
                link.say(ACK_OP, None)
            case 2:
                self._identify(link, frame["d"])
            case 6:
                self._resume(link, frame["d"])
            case 3 | 4 | 8 | 14:
                pass
            case _:
                link.close_soon(4001)

    def _identify(self, link: Link, said: Json) -> None:
        intents = said.get("intents")
        if link.session:
            link.close_soon(4005)
        elif said.get("token") != self.token or self.revoked:
            link.close_soon(4004)
        elif not isinstance(intents, int) or intents >= 1 << 26:
            link.close_soon(4013)
        elif intents & (MEMBERS | PRESENCES | MESSAGE_CONTENT) & ~self.privileged:
            link.close_soon(4014)
        else:
            self.identifies += 1
            session = Session(f"{self.snowflake():0>32}", intents, link)
            self.sessions[session.id] = link.session = session
            self._welcome(link, session, said)

    def _welcome(self, link: Link, session: Session, said: Json) -> None:
        hello: Json = {
            "v": 10,
            "user": self.users[self.me].view() | {"verified": True, "mfa_enabled": False, "flags": 0},
            "guilds": [{"id": GUILD, "unavailable": True}] if self.in_guild else [],
            "session_id": session.id,
            "resume_gateway_url": self.gateway_url,
            "application": {"id": APP, "flags": 0},
            "private_channels": [],
            "session_type": "normal",
        }
        if "shard" in said:
            hello["shard"] = said["shard"]
        session.tell("READY", json.dumps(hello))
        link.ready = True
        if self.in_guild and session.wants("guilds", None):
            session.tell("GUILD_CREATE", json.dumps(guild_view(self)))

    def _resume(self, link: Link, said: Json) -> None:
        session = self.sessions.get(said.get("session_id", ""))
        seq = said.get("seq")
        if said.get("token") != self.token or self.revoked:
            link.close_soon(4004)
        elif session is None or not isinstance(seq, int):
            link.say(INVALID_OP, False)
        elif seq > session.seq:
            link.close_soon(4007)
        else:
            self.resumes += 1
            if session.link and session.link is not link:
                session.link.close_soon(4000)
            session.link, link.session = link, session
            session.replay(seq)
            link.ready = True
