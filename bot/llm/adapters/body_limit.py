"""A limit for every response body, below the SDKs, which have none of their own.

| body                                        | what happens |
| of an error or a redirect, over `MAX_PAGE`  | cut there: the status is enough |
| compressed, against our request             | not read: it may be a bomb; of a 200, `OutputInvalid` |
| of a 200, over `MAX_BODY`                   | `OutputInvalid` |
| an event of a stream, over `MAX_EVENT`      | `OutputInvalid`: the SDKs buffer a whole event |
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import AsyncIterator

import httpx2

from bot.llm.adapters.stream import MAX_PAGE
from bot.ports.errors import OutputInvalid

MAX_BODY = 64_000_000
"""Bytes of a whole answer on the wire."""

MAX_EVENT = 8_000_000
"""Bytes of one event: the last one of a Responses stream holds the whole answer again."""

BORDERS = (b"\n\n", b"\r\r", b"\r\n\r\n")
"""The end of an event."""


async def bound(response: httpx2.Response) -> None:
    """Limit the body of *response*; a hook of the client, called before the body is read."""
    stream = response.stream
    if not isinstance(stream, httpx2.AsyncByteStream):
        return
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        response.stream = _Bounded(stream, response)
    elif response.status_code >= 300:
        await stream.aclose()
        response.stream = httpx2.ByteStream(b"(a compressed body, not read)")
    else:
        raise OutputInvalid(f"the answer is compressed ({encoding}), which was not asked for")


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, response: httpx2.Response) -> None:
        self._stream = stream
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        failed = self._response.status_code >= 300
        size = event = 0
        end = b""
        async for piece in self._stream:
            if not size:
                piece = piece.removeprefix(BOM_UTF8)  # noqa: PLW2901 - The SDKs would take it for a field's name.
            size += len(piece)
            if failed and size >= MAX_PAGE:
                yield piece[: MAX_PAGE - size or None]
                return
            if size > MAX_BODY:
                raise OutputInvalid(f"given up: the answer is larger than {MAX_BODY} bytes")
            end += piece
            border = max(end.rfind(border) for border in BORDERS)
            event = len(end) - border if border >= 0 else event + len(piece)
            if event > MAX_EVENT:
                raise OutputInvalid(f"given up: an event of the answer is larger than {MAX_EVENT} bytes")
            end = end[-3:]
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
