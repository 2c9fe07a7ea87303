"""Matrix as a transport: `intake` takes events in, `posting` posts, and `live` shows signs of work."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

import aiohttp
from anyio.abc import TaskGroup
from yarl import URL

from threads.model import (
    Attachment,
    Earlier,
    Outgoing,
    Sink,
    Spoken,
    ThreadId,
    TurnEvent,
    TurnSettled,
    message_key,
)
from threads.store.json_file import State
from transports.base.transport import Capabilities
from transports.matrix.api import Api, open_api
from transports.matrix.intake import Intake, SyncState
from transports.matrix.live import Presence, Streaming
from transports.matrix.parse import parse_spoken
from transports.matrix.posting import Posting
from transports.matrix.values import Event, Me, Room, decoded, room_of, root_of
from transports.shared.buttons import Presses
from transports.shared.client import Client, Connection
from transports.shared.downloads import FileHost, opened, read, unavailable
from transports.shared.live.background_calls import retry_cleanup

log = logging.getLogger(__name__)

MOST_EARLIER = 10
"""Pages of 100 events that are read of a thread, or of a direct room, before a message."""
LINES = 200
"""The newest lines that are handed on; the others are counted."""


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of the transport. ``may_invite`` returns whether a person may have the bot in a room."""

    homeserver: str
    token: str = field(repr=False)
    streaming: Streaming = "edits"
    reactions: bool = True
    typing: bool = True
    feedback: bool = False
    bots: frozenset[str] = frozenset()
    max_age_s: float = 600
    may_invite: Callable[[str, Room], bool] = lambda _, __: True


@dataclass(frozen=True, kw_only=True)
class _Connection(Connection[Api]):
    me: Me
    intake: Intake
    posting: Posting
    presence: Presence

    async def post(self, outgoing: Outgoing, draft: Sequence[str]) -> str:
        return await self.posting.post(outgoing, draft)

    async def try_out(self, thread: ThreadId, message_id: str) -> None:
        await self.posting.try_out(thread, message_id)

    async def tell(self, person: str, text: str, key: str) -> None:
        await self.posting.tell(person, text, key)

    async def sweep_lost(self, thread: ThreadId, message_id: str) -> None:
        """Do nothing: a message that was sent without an answer has the transaction id of the final one."""

    def follow_up(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        if (
            isinstance(event, TurnSettled)
            and event.interrupted
            and event.outcome in ("stopped", "undelivered", "withdrawn")
        ):
            sweep = partial(self.posting.sweep, thread, message_key(thread, message_id))
            self.presence.soon(partial(retry_cleanup, sweep, thread))

    async def name_of(self, user: str) -> str:
        return user[1:].partition(":")[0]

    async def retire(self, press: Any) -> None:
        """Do nothing: a reaction that was used stays its person's."""


class Matrix(Client[Options, Api, _Connection]):
    """One account. A post has its transaction id, so that none lands late and becomes a second one."""

    kind = "matrix"
    capabilities = Capabilities(find=True, lands_late=False, asks=True, earlier=True, files=True, closes=True)
    open_state: Callable[[], Awaitable[State[SyncState]]]
    """Opens where the sync goes on after a restart."""
    _files: aiohttp.ClientSession

    def link(self, thread: ThreadId) -> str:
        root = root_of(thread)
        return f"https://matrix.to/#/{quote(room_of(thread))}{f'/{quote(root)}' if root else ''}"

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        """See `Transport.earlier`. A direct room is one conversation, of which the bot has all."""
        api, root, lines = (await self._connect()).api, root_of(thread), list[Event]()
        if not root:
            return Earlier()
        start, room, begun = "", room_of(thread), False
        for _ in range(MOST_EARLIER):
            page, start = await api.events(room, root, start=start)
            for event in page:
                if begun and event.get("event_id") == decoded(after):
                    start = ""
                    break
                lines += [event] if begun else []
                begun = begun or event.get("event_id") == decoded(before)
            if not start:
                break
        if not after and before != thread.root:
            lines.append(await api.event(room, root))
        me = (await self._connect()).me
        spoken = [line for event in reversed(lines) if (line := self._spoken(api, me, room, event))]
        return Earlier(tuple(spoken[-LINES:]), max(0, len(spoken) - LINES))

    def _spoken(self, api: Api, me: Me, room: str, event: Event) -> Spoken | None:
        if event.get("type") == "m.room.encrypted" and event.get("content"):
            self.count_unread("encrypted")
        return parse_spoken(event, me, api.name_of(room, str(event.get("sender", ""))))

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        api, locked = (await self._connect()).api, dict[str, Any]()
        address = attachment.url
        if address.startswith("{"):
            locked = json.loads(address)
            address = str(locked.get("url"))
        server, _, media = address.removeprefix("mxc://").partition("/")
        if not address.startswith("mxc://") or not (server and media):
            raise unavailable("no address in Matrix", HOST.elsewhere)
        base = URL(self._options.homeserver)
        host = FileHost("Matrix", lambda url: url.origin() == base.origin(), HOST.no_access, api.headers)
        path = f"/_matrix/client/v1/media/download/{quote(server)}/{quote(media, safe='')}"
        async with opened(self._files, f"{self._options.homeserver.rstrip('/')}{path}", host) as response:
            chunks = read(response, attachment.size)
            yield _unlocked(chunks, locked) if locked else chunks

    @asynccontextmanager
    async def _open_api(self) -> AsyncIterator[Api]:
        async with (
            open_api(self._options.homeserver, self._options.token, self.name) as api,
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as self._files,
        ):
            yield api

    async def _run_link(self, connection: _Connection, connected: Callable[[], None]) -> None:
        def heard() -> None:
            connected()
            self._supervisor.heard()

        await connection.intake.run(heard)

    async def _log_in(self, api: Api, sink: Sink, tasks: TaskGroup) -> _Connection:
        options, me = self._options, await api.log_in(self._data / f"{self.name}-keys")
        posting = Posting(api, me, feedback=options.feedback)
        presence = Presence(
            api, posting, streaming=options.streaming, typing=options.typing, reactions=options.reactions
        )
        tasks.start_soon(presence.run)
        intake = Intake(
            api,
            me,
            sink,
            await self.open_state(),
            bots=options.bots,
            max_age_s=options.max_age_s,
            feedback=options.feedback,
            may_invite=options.may_invite,
            now_s=lambda: self._now().timestamp(),
            count_unread=self.count_unread,
        )
        return _Connection(
            api=api,
            me=me,
            intake=intake,
            posting=posting,
            presence=presence,
            presses=Presses(posting.questions),
        )


HOST = FileHost("Matrix", lambda _: False, "I am not allowed to read it: the homeserver refused.")


async def _unlocked(chunks: AsyncIterator[bytes], locked: dict[str, Any]) -> AsyncIterator[bytes]:
    """Decrypt an attachment. Raises `FileUnavailable` at its end if it is not what was sent.

    https://spec.matrix.org/v1.16/client-server-api/#sending-encrypted-attachments
    """
    from Crypto.Cipher import AES  # noqa: PLC0415 - comes with nio's extra for encryption
    from Crypto.Util import Counter  # noqa: PLC0415

    try:
        key = base64.urlsafe_b64decode(_padded(locked["key"]["k"]))
        begin = base64.b64decode(_padded(locked["iv"]))
        wanted = base64.b64decode(_padded(locked["hashes"]["sha256"]))
        counter = Counter.new(64, prefix=begin[:8], initial_value=int.from_bytes(begin[8:], "big"))
        cipher = AES.new(key, AES.MODE_CTR, counter=counter)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise unavailable(
            f"no key: {type(error).__name__}", "it is encrypted, and its key cannot be read."
        ) from error
    found = hashlib.sha256()
    async for chunk in chunks:
        found.update(chunk)
        yield cipher.decrypt(chunk)
    if found.digest() != wanted:
        raise unavailable("another hash", "it is damaged. Sending it again may help.")


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)
