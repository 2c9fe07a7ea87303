"""A limit for every response body, below all who read one: neither the SDKs nor our decoder have one.

| body                                        | what happens |
| of an error or a redirect, over `MAX_PAGE`  | cut there: the status is enough |
| compressed, against our request             | gzip and deflate are read; another of a 200 is `UnreadableAnswer` |
| of a 200, over `MAX_BODY`                   | `OutputInvalid` |
| an event of a stream, over `MAX_EVENT`      | `OutputInvalid`: a whole event is held in memory |
"""

from __future__ import annotations

import zlib
from codecs import BOM_UTF8
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

import httpx2

from bot.llm.adapters.sse import MAX_PAGE
from bot.ports.errors import OutputInvalid, UnreadableAnswer

MAX_BODY = 64_000_000
"""Bytes of a whole answer on the wire."""

MAX_EVENT = 8_000_000
"""Bytes of one event: the last one of a Responses stream holds the whole answer again."""

MAX_WINDOW = zlib.MAX_WBITS | 32
"""For zlib: gzip and deflate, with windows of any size."""

LONGEST_MARK = 4
"""Bytes that tell how a body begins, a byte-order mark included."""

PIECE = 65_536
"""Bytes to unpack at once."""

BORDERS = (b"\n\n", b"\r\r", b"\r\n\r\n")
"""The end of an event."""


async def bound(response: httpx2.Response) -> None:
    """Limit the body of *response*; a hook of the client, called before the body is read."""
    stream = response.stream
    if isinstance(stream, httpx2.AsyncByteStream):
        # Without the label httpx2 leaves the body alone. It may be untrue: gateways unpack a body and keep the label.
        label = response.headers.pop("content-encoding", "")
        response.stream = Bounded(stream, stream.aclose, response.status_code, label)


async def _unpacked(pieces: AsyncIterable[bytes], label: str) -> AsyncIterator[bytes]:
    """Yield the body as it was before it was compressed, in bounded pieces; its first bytes tell how it is."""
    packed: zlib._Decompress | None = None
    head = b""
    begun = False
    try:
        async for piece in pieces:
            if not begun:
                head += piece
                if len(head) < LONGEST_MARK:
                    continue
                piece, begun = head, True  # noqa: PLW2901 - The first bytes were held back.
                packed = _packed_as(head, label)
            if packed is None:
                yield piece
                continue
            while piece:
                if packed.eof:  # Some gateways compress each flush by itself.
                    packed = zlib.decompressobj(MAX_WINDOW)
                unpacked = packed.decompress(piece, PIECE)
                piece = packed.unconsumed_tail or packed.unused_data  # noqa: PLW2901
                if unpacked:
                    yield unpacked
    except zlib.error as error:
        raise UnreadableAnswer(
            f"the answer is compressed ({label}), and cannot be unpacked: {error}"
        ) from error
    if not begun and head:
        yield head


def _packed_as(head: bytes, label: str) -> zlib._Decompress | None:
    """Return what unpacks a body with these first bytes, or None for one that is not compressed."""
    if head.startswith((b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda")):
        return zlib.decompressobj(MAX_WINDOW)
    text = head.removeprefix(BOM_UTF8)[:1].decode("ascii", "replace")
    if label not in ("", "identity") and not (text.isascii() and (text.isprintable() or text.isspace())):
        raise UnreadableAnswer(f"the answer is compressed ({label}), which was not asked for")
    return None


class Bounded(httpx2.AsyncByteStream):
    """The body of a response with this status; *label* says how it is compressed, a blank that it is not."""

    def __init__(
        self, pieces: AsyncIterable[bytes], close: Callable[[], Awaitable[None]], status: int, label: str
    ) -> None:
        self._raw, self._close, self._status, self._label = pieces, close, status, label.strip().lower()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        failed = self._status >= 300
        try:
            async for piece in self._pieces(failed):
                yield piece
        except UnreadableAnswer:
            if not failed:
                raise
            yield b"(a compressed body, not read)"

    async def _pieces(self, failed: bool) -> AsyncIterator[bytes]:
        size = event = 0
        end = b""
        async for piece in _unpacked(self._raw, self._label):
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
        await self._close()
