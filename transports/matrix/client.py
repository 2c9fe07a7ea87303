"""Matrix as a transport: `intake` takes events in, `posting` posts, and `live` shows signs of work."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

import aiohttp
from anyio.abc import TaskGroup
from Crypto.Cipher import AES
from yarl import URL

from threads.model import Attachment, Earlier, Outgoing, Sink, ThreadId, TurnEvent, TurnSettled, message_key
from threads.store.json_file import State
from transports.base.transport import Capabilities
from transports.matrix.api import NEWER, Api, is_locked, open_api
from transports.matrix.intake import Intake, SyncState
from transports.matrix.live import Presence
from transports.matrix.parse import parse_spoken, sent_at
from transports.matrix.posting import Posting
from transports.matrix.settings import MatrixSettings
from transports.matrix.values import Event, Room, decoded, room_of, root_of, text
from transports.shared.buttons import Presses
from transports.shared.client import Client, Connection
from transports.shared.downloads import FileHost, opened, read, unavailable
from transports.shared.live.background_calls import retry_cleanup

MOST_PAGES, MOST_LINES = 10, 200
"""Pages of a thread that are read before a message, and the newest lines of those; the others are counted."""
REFUSED = "I am not allowed to read it: the homeserver refused."


@dataclass(frozen=True, slots=True)
class Options:
    """What the transport is given. ``links`` are hosts that may be linked.

    ``may_invite`` returns whether a person may have the bot in a room.
    """

    settings: MatrixSettings
    token: str = field(repr=False)
    max_age_s: float
    links: frozenset[str] = frozenset()
    may_invite: Callable[[str, Room], bool] = lambda _, __: True


@dataclass(frozen=True, kw_only=True)
class _Connection(Connection[Api]):
    intake: Intake
    posting: Posting
    presence: Presence

    async def post(self, outgoing: Outgoing, _: Sequence[str]) -> str:
        posted = await self.posting.post(outgoing)
        if outgoing.choices:
            self.presence.soon(partial(self.posting.offer, outgoing))
        return posted

    async def try_out(self, thread: ThreadId, _: str) -> None:
        await self.posting.try_out(thread)

    async def tell(self, person: str, text: str, key: str) -> None:
        await self.posting.tell(person, text, key)

    async def sweep_lost(self, thread: ThreadId, message_id: str) -> None:
        """Do nothing: what was sent without an answer has the transaction id of the final message."""

    def follow_up(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        if isinstance(event, TurnSettled) and event.interrupted and event.outcome != "answered":
            sweep = partial(self.posting.sweep, thread, message_key(thread, message_id))
            self.presence.soon(partial(retry_cleanup, sweep, thread))

    async def name_of(self, user: str) -> str:
        return user[1:].partition(":")[0]

    async def retire(self, press: Any) -> None:
        """Do nothing: a reaction stays its person's."""


class Matrix(Client[Options, Api, _Connection]):
    """One account. A transaction id is good for one post, so none that lands late becomes a second one."""

    kind = "matrix"
    capabilities = Capabilities(find=True, lands_late=False, asks=True, earlier=True, files=True, closes=True)
    open_state: Callable[[], Awaitable[State[SyncState]]]
    """Opens where the sync goes on after a restart."""
    _files: aiohttp.ClientSession

    def link(self, thread: ThreadId) -> str:
        places = filter(None, (room_of(thread), root_of(thread)))
        return "/".join(["https://matrix.to/#", *(quote(place, safe="") for place in places)])

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        """See `Transport.earlier`. A direct room is one conversation, of which the bot has all."""
        api, room, root = (await self._connect()).api, room_of(thread), root_of(thread)
        lines, start, ids = list[Event](), "", list[str]()
        for _ in range(MOST_PAGES if root else 0):
            page, start = await api.events(room, root, start)
            lines += page
            ids = [text(event, "event_id") for event in lines]
            if not start or (after and decoded(after) in ids):
                break
        if root and not start and before != thread.root:
            lines, ids = [*lines, await api.event(room, root)], [*ids, root]
        first = ids.index(decoded(before)) + 1 if decoded(before) in ids else 0
        if (known := decoded(after)) and known not in ids:  # it was deleted, and stands in no thread any more
            at = sent_at(await api.event(room, known))
            ids = [known if sent_at(line) <= at else id_ for id_, line in zip(ids, lines, strict=True)]
        last = ids.index(known) if known in ids else len(ids)
        if any(map(is_locked, lines[first:last])):
            self.count_unread("encrypted")
        said = [(event, api.name_of(room, text(event, "sender"))) for event in reversed(lines[first:last])]
        spoken = [line for event, name in said if (line := parse_spoken(event, api.me, name))]
        return Earlier(tuple(spoken[-MOST_LINES:]), max(0, len(spoken) - MOST_LINES))

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        locked = json.loads(attachment.url) if attachment.url.startswith("{") else {}
        scheme, _, address = str(locked.get("url") or attachment.url).partition("mxc://")
        own = URL(self._options.settings.homeserver)
        headers = {"Authorization": f"Bearer {self._options.token}"}
        host = FileHost("Matrix", lambda url: url.origin() == own.origin() and not scheme, REFUSED, headers)
        path = f"{str(own).rstrip('/')}{NEWER}/media/download/{quote(address)}"
        async with opened(self._files, attachment.url if scheme else path, host) as response:
            chunks = read(response, attachment.size)
            yield _unlocked(chunks, locked) if locked else chunks

    @asynccontextmanager
    async def _open_api(self) -> AsyncIterator[Api]:
        async with (
            open_api(self._options.settings.homeserver, self._options.token, self.name) as api,
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as self._files,
        ):
            yield api

    async def _run_link(self, connection: _Connection, connected: Callable[[], None]) -> None:
        await connection.intake.run(connected)  # each sync is a sign of life

    async def _log_in(self, api: Api, sink: Sink, tasks: TaskGroup) -> _Connection:
        settings, device = self._options.settings, await api.log_in()
        # In a thread it would meet another account in nio.
        api.open_keys(self._data / f"{self.name}-keys", device)
        posting = Posting(api, self._options.links)
        presence = Presence(api, posting, settings)
        tasks.start_soon(presence.run)
        intake = Intake(
            api, sink, await self.open_state(), bots=frozenset(settings.bots), now=self._now,
            max_age=timedelta(seconds=self._options.max_age_s), may_invite=self._options.may_invite,
            count_unread=self.count_unread,
        )  # fmt: skip
        presses = Presses[Any](posting.questions)
        return _Connection(api=api, intake=intake, posting=posting, presence=presence, presses=presses)


async def _unlocked(chunks: AsyncIterator[bytes], locked: dict[str, Any]) -> AsyncIterator[bytes]:
    """Decrypt an attachment. Raises `FileUnavailable`, at its end if it is not what was sent.

    https://spec.matrix.org/v1.16/client-server-api/#sending-encrypted-attachments
    """
    try:
        key, begin, wanted = map(_bytes, (locked["key"]["k"], locked["iv"], locked["hashes"]["sha256"]))
        cipher = AES.new(key, AES.MODE_CTR, nonce=begin[:8], initial_value=begin[8:])
    except (KeyError, TypeError, ValueError) as error:
        raise unavailable(f"no key: {error!r}", "it is encrypted, and its key cannot be read.") from error
    found = hashlib.sha256()
    async for chunk in chunks:
        found.update(chunk)
        yield cipher.decrypt(chunk)
    if found.digest() != wanted:
        raise unavailable("another hash", "it is damaged. Sending it again may help.")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_" if set(text) & set("-_") else None)
