"""What every request passes before anything of ours sees it, and the headers that every response leaves with.

| a request                                        | answer |
|--------------------------------------------------|---|
| whose end can be read in two ways                | 400 |
| to a host name that is not ours                  | 421: a name of somebody else's may lead here (DNS rebinding) |
| with a proxy's word that does not count          | 400 or 403, see `transports.web.sign_in` |
| that changes something, from another origin      | 403 |
| that changes something, without our token        | 403 |
| with a body over the limit of its path           | 413 |
| with a body that comes too slowly                | 408 |
| while too many are open                          | 503 |

The token is checked where the session is known, in `transports.web.routes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transports.web.address import Address

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Scripts and styles only from our own files, nothing from anywhere else, and no text of ours turned into HTML."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

MOST_REQUESTS = 1_000
"""Requests, event streams included, that are open at once."""

BODY_BYTES = 1_000_000
"""Bytes of any body but a file's."""

BODY_S, CHUNK_S = 300.0, 15.0
"""Seconds for a whole body, and for its next piece."""

CLOSE: Final = {"Connection": "close"}
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})
FILES: Final = "/api/files"


@dataclass(slots=True)
class Guard:
    """An ASGI middleware. ``file_bytes`` is the largest file that is taken."""

    app: ASGIApp
    address: Address
    file_bytes: int
    refuses: Callable[[Scope, Headers], tuple[int, str] | None] = lambda *_: None
    open_requests: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        if refused := self._refusal(scope, headers):
            refusal = PlainTextResponse(f"{refused[1]}\n", refused[0], CLOSE)
            await refusal(scope, receive, self._sealed(send))
            return
        self.open_requests += 1
        try:
            await self.app(scope, _Body(receive, self._most(scope)).receive, self._sealed(send))
        finally:
            self.open_requests -= 1

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        if self.open_requests >= MOST_REQUESTS:
            return 503, "too many requests are open; try again in a moment"
        if "transfer-encoding" in headers and ("content-length" in headers or scope["http_version"] != "1.1"):
            return 400, "send a Content-Length or chunks"  # h11 takes either, and a proxy may take the other
        if headers.getlist("host") != [host := headers.get("host", "")] or not self.address.is_host(host):
            return 421, "this is not an address of this page; see transports.web in settings.json"
        if scope["method"] not in SAFE_METHODS and not self._same_origin(headers):
            return 403, "this request comes from another page"
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > self._most(scope):
            return 413, _too_long(self._most(scope))
        return self.refuses(scope, headers)

    def _most(self, scope: Scope) -> int:
        """Return the longest body that is taken, in bytes."""
        return self.file_bytes if scope["path"] == FILES else BODY_BYTES

    def _same_origin(self, headers: Headers) -> bool:
        """Return whether a changing request comes from our own page. Every browser says so on such a request."""
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return False
        return self.address.is_origin(headers.get("origin", ""))

    def _sealed(self, send: Send) -> Send:
        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if self.address.secure:
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        return sealed


def _too_long(most: int) -> str:
    return f"at most {most:,} bytes are taken here"


class _Body:
    """A body of at most *most* bytes that comes in time. Its ``receive`` raises `HTTPException` for any other."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most = receive, most
        self._began, self._over, self._size = anyio.current_time(), False, 0

    async def receive(self) -> Message:
        if self._over:  # a stream waits here for its page to leave
            return await self._receive()
        with anyio.move_on_at(min(anyio.current_time() + CHUNK_S, self._began + BODY_S)):
            message = await self._receive()
            self._over = not message.get("more_body", False)
            self._size += len(message.get("body", b""))
            if self._size > self._most:
                raise HTTPException(413, _too_long(self._most), CLOSE)
            return message
        raise HTTPException(408, "the rest did not come in time", CLOSE)
