"""The TCP connections below a fake's requests."""

from __future__ import annotations

import asyncio
import socket
import struct

from aiohttp import web


def connection(request: web.Request) -> int:
    """Tells the TCP connections of the clients apart (their port)."""
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return peer[1] if peer else 0


def reset(transport: asyncio.Transport) -> None:
    """End a connection with RST."""
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
