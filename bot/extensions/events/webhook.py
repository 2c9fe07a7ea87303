"""The webhook: `POST /events/NAME`, signed by the source of that name.

Nothing that a request says of where it comes from counts, such as ``X-Forwarded-For``: only its signature does. One
whose end could be read in two ways is refused, and a connection has one request. Who has no signature learns nothing,
not even which sources there are.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

import anyio
import h11
from anyio.abc import ByteStream

from bot.extensions.events.intake import Intake
from bot.extensions.events.refused import Refused
from bot.extensions.events.request import GONE, answer, read_body, text_in
from bot.extensions.events.settings import EventSettings
from bot.extensions.events.signature import SINGLE, UNSIGNED, key_of
from bot.observe.http_pages import LOOPBACK, MAX_HEAD

log = logging.getLogger(__name__)

HEAD_S = 5.0
AT_ONCE = 64
PATH = "/events/"

_ODD_HEAD = re.compile(rb"(?<!\r)\n|\r(?!\n)|\r\n[ \t]")
"""A bare line end, or a line that goes on in the next: a proxy may read such a head in another way."""

_KINDS = re.compile(r'(?ai)(application/json|text/plain)\s*(;\s*charset="?utf-8"?\s*)?')


@dataclass(slots=True)
class Webhook:
    """``keys`` has what signs, by source. ``stranger`` signs for those that there are not."""

    given: EventSettings
    intake: Intake
    keys: Mapping[str, bytes]
    stranger: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _slots: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(AT_ONCE))

    async def serve(self, stream: ByteStream) -> None:
        """Serve one request and close the connection, or only close it if there are too many. Raises nothing."""
        peer = h11.Connection(h11.SERVER, MAX_HEAD)
        try:
            async with stream:
                if self._slots.available_tokens:
                    async with self._slots:
                        await answer(stream, peer, partial(self._take, stream, peer), "webhook")
        except (*GONE, h11.LocalProtocolError) as error:
            log.debug("event.hung_up: %s", error)

    async def _take(self, stream: ByteStream, peer: h11.Connection) -> str:
        """Return the id of an event. Raises `Refused`, `StoreUnavailable`, h11's errors and `GONE`."""
        raw = b""
        with anyio.move_on_after(HEAD_S):
            while b"\r\n\r\n" not in raw and len(raw) <= MAX_HEAD:
                raw += await stream.receive(MAX_HEAD)
        head = raw.partition(b"\r\n\r\n")[0]
        if head == raw or len(head) > MAX_HEAD or _ODD_HEAD.search(head):
            raise Refused(400, "the head of this request is too long, too slow or odd")
        peer.receive_data(raw)
        request = peer.next_event()
        assert isinstance(request, h11.Request)
        name, headers = self._checked(request)
        body, source = await read_body(stream, peer), self.given.sources.get(name)
        form, secret = source.form if source else "standard", self.keys.get(name, self.stranger)
        key = key_of(form, secret, headers, body, self.intake.accepted.now())
        if source is None:
            raise Refused(*UNSIGNED)
        return await self.intake.take(name, source.channel, text_in(body), key)

    def _checked(self, request: h11.Request) -> tuple[str, Mapping[str, str]]:
        """Return the name of the source that a request is for, and its headers. Raises `Refused`."""
        names = [name.decode("ascii") for name, _ in request.headers]
        headers = dict(zip(names, (value.decode("latin-1") for _, value in request.headers), strict=True))
        public = urlsplit(self.given.public_url or "").netloc.lower()
        ours = filter(None, (public, *(f"{name}:{self.given.port}" for name in LOOPBACK)))
        path, host = request.target.decode("ascii"), headers.get("host", "").lower()
        coded = headers.get("content-encoding", "identity").lower() != "identity"
        kind = _KINDS.fullmatch(headers.get("content-type", "").strip())
        odd = "transfer-encoding" in names and ("content-length" in names or request.http_version != b"1.1")
        for status, why, refused in (
            (400, "a header stands there twice", any(names.count(name) > 1 for name in SINGLE)),
            (400, "send a Content-Length or chunks", odd),
            (421, "this is not its address; see events.public_url", host not in ours),
            (404, "there is no such page", not path.startswith(PATH)),
            (405, "send a POST", request.method != b"POST"),
            (415, "send application/json or text/plain, in UTF-8", kind is None or coded),
        ):
            if refused:
                raise Refused(status, why)
        return path.removeprefix(PATH), headers
