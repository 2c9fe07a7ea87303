"""A cloud on loopback: tokens and models at any path, with what each request had on the wire."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.fakes.http import Reply


@dataclass(frozen=True)
class Called:
    """``url`` is as it was sent, with its query."""

    url: str
    headers: dict[str, str]
    body: bytes


@asynccontextmanager
async def cloud(
    answer: Callable[[Called], Reply | dict[str, Any]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, list[Called]]]:
    """Yield the address of a server that gives these answers, and what it was asked."""
    called, connections = list[Called](), set[asyncio.Transport]()

    async def serve(request: web.Request) -> web.Response:
        connections.add(request.transport)
        headers = {name.lower(): value for name, value in request.headers.items()}
        called.append(Called(request.raw_path, headers, await request.read()))
        reply = answer(called[-1])
        if isinstance(reply, dict):
            return web.json_response(reply)
        return web.Response(body=b"".join(reply.steps), status=reply.status, headers=dict(reply.headers))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        yield f"http{'s' if tls else ''}://127.0.0.1:{port}", called
    finally:
        for one in connections:  # over TLS each would wait for the other side to close it too
            one.abort()
        await runner.cleanup()
