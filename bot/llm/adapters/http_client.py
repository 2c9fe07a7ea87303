"""The one HTTP client that all providers share, so that connections and the TLS context are paid for once.

Environment proxies and certificates are honoured, because a company network may offer no other way out; loopback
never goes through a proxy, because a local model server is not behind one. Redirects are not followed: what is
said in a chat goes to the configured host and to no other. `body_limit` bounds every body that is read.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    import httpx2

    from bot.config.settings import StreamTimeouts

CLOSE_WITHIN_S = 5.0
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


class SharedHttp:
    """Calling it returns the client, which is made at first use, from whichever thread comes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: httpx2.AsyncClient | None = None

    def __call__(self) -> httpx2.AsyncClient:
        with self._lock:
            if self._client is None:
                self._client = open_http()
            return self._client

    async def aclose(self) -> None:
        """Close all connections; a later call would make a new client."""
        client, self._client = self._client, None
        if client is not None:
            with anyio.move_on_after(CLOSE_WITHIN_S, shield=True):
                await client.aclose()


def open_http() -> httpx2.AsyncClient:
    """Make a client with room for 2,000 streams; idle connections live 120 s, so the next turn finds one open.

    The default of 5 s would mean a new TLS handshake for nearly every turn of a chat.
    """
    import httpx2  # noqa: PLC0415

    from bot.llm.adapters.body_limit import bound  # noqa: PLC0415

    return httpx2.AsyncClient(
        limits=httpx2.Limits(max_connections=2000, max_keepalive_connections=200, keepalive_expiry=120),
        timeout=httpx2.Timeout(600, connect=5, read=300, write=30, pool=10),
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [bound]},
        mounts=dict.fromkeys(LOOPBACK),
    )


def socket_timeout(timeouts: StreamTimeouts) -> httpx2.Timeout:
    """Return the socket's limits. `stream` judges silence by content; this is the net below it."""
    import httpx2  # noqa: PLC0415

    longest = max(timeouts.first_content, timeouts.idle)
    return httpx2.Timeout(timeouts.total, connect=timeouts.connect, read=longest, write=30, pool=10)
