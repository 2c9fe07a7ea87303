"""Reading one request of a sender within limits, and answering it. The connection ends after it."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable

import anyio
import h11
from anyio.abc import ByteStream

from bot.extensions.events.refused import Refused
from bot.observe.http_pages import HttpPage, encoded
from threads.errors import StoreUnavailable, error_fields

log = logging.getLogger(__name__)

MOST_BYTES = 65_536
BODY_S = 10.0
Take = Callable[[], Awaitable[str]]
"""Returns the id of an accepted event. Raises `Refused`, `StoreUnavailable` and h11's errors."""

GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


async def answer(stream: ByteStream, peer: h11.Connection, take: Take, origin: str) -> None:
    """Answer a request with the id of the event that *take* accepts, or with why it does not. Raises `GONE`."""
    try:
        status, said = 202, {"event": await take()}
    except Refused as refused:
        status, why = refused.args
        log.warning("event.refused: %s: %s", origin, why, extra={"code": f"http_{status}"})
        said = {"error": why}
    except h11.RemoteProtocolError as error:
        status, said = error.error_status_hint, {"error": "this is not a request that can be read"}
    except StoreUnavailable as error:
        log.warning("event.not_stored: %s: %s", origin, error, extra=error_fields(error))
        status, said = 503, {"error": "the event could not be stored; send it again"}
    page = HttpPage(json.dumps(said).encode() + b"\n", status, "application/json")
    await stream.send(encoded(page, peer))


async def read_body(stream: ByteStream, peer: h11.Connection) -> bytes:
    """Return the body of a request. Raises `Refused` if it is too long or too slow, and `GONE`."""
    body = b""
    with anyio.move_on_after(BODY_S):
        while not isinstance(event := peer.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                body += event.data
            else:
                peer.receive_data(await stream.receive(MOST_BYTES))
            if len(body) > MOST_BYTES:
                raise Refused(413, f"at most {MOST_BYTES:,} bytes are taken here")
        return body
    raise Refused(408, "the rest did not come in time")


def text_in(body: bytes) -> str:
    """Return the words of a body. Raises `Refused` if there are none, or if they are not UTF-8."""
    try:
        text = body.decode().replace("\0", "").strip()
    except UnicodeDecodeError:
        raise Refused(400, "the body must be UTF-8") from None
    if not text:
        raise Refused(422, "there are no words in it")
    return text
