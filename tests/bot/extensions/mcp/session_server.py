"""A server over streamable HTTP with sessions, which forgets them and says so in the way that a test chooses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.patience import until

SESSION = "mcp-session-id"


@dataclass
class SessionServer:
    """``refusal`` answers a request of a session that it does not know; ``result`` is the bytes of a call's result."""

    url: str
    refusal: Callable[[object], Response] = lambda _: Response(status_code=404)
    result: bytes = b'{"content": []}'
    content_type: str = "application/json"
    knows_calls: bool = True
    tools: list[str] = field(default_factory=lambda: ["hello"])
    changed: anyio.Event = field(default_factory=anyio.Event)
    """Set to say on the stream of a session that its tools have changed."""
    opened: int = 0
    sessions: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    """The session of each call that has run."""

    async def stream(self) -> AsyncIterator[str]:
        yield ": open\n\n"
        await self.changed.wait()
        said = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        yield f"event: message\ndata: {json.dumps(said)}\n\n"
        await anyio.sleep_forever()

    async def answer(self, request: Request) -> Response:
        if request.method == "GET":
            return StreamingResponse(self.stream(), media_type="text/event-stream")
        if request.method != "POST":
            return Response(status_code=405)
        asked = json.loads(await request.body())
        session = request.headers.get(SESSION, "")
        match asked["method"]:
            case "initialize":
                self.opened += 1
                self.sessions.add(session := f"s{self.opened}")
                version = asked["params"]["protocolVersion"]
                info = {"name": "s", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
                return JSONResponse(
                    {"jsonrpc": "2.0", "id": asked["id"], "result": result}, headers={SESSION: session}
                )
            case _ if not session:
                return Response(status_code=400)
            case method if session not in self.sessions or not (self.knows_calls or method != "tools/call"):
                return self.refusal(asked.get("id"))
            case "tools/list":
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
                return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": tools}})
            case "tools/call":
                self.calls.append(session)
                body = b'{"jsonrpc": "2.0", "id": %d, "result": %s}' % (asked["id"], self.result)
                if self.content_type == "text/event-stream":
                    body = b"event: message\ndata: " + body + b"\n\n"
                return Response(body, media_type=self.content_type)
            case _:
                return Response(status_code=202)


@asynccontextmanager
async def session_server(port: int) -> AsyncIterator[SessionServer]:
    ours = SessionServer(f"http://127.0.0.1:{port}/mcp")
    app = Starlette(routes=[Route("/mcp", ours.answer, methods=["GET", "POST", "DELETE"])])
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server._serve)
        await until(lambda: server.started)
        yield ours
        server.should_exit = server.force_exit = True
