"""The homeserver's client API, over nio: nio encrypts, keeps the keys and follows the rooms' members.

nio answers errors as values, and waits by itself when it is told to; here errors are raised, and the outbox is the
one that waits. https://spec.matrix.org/v1.16/client-server-api/
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import aiohttp
import anyio
import nio
from nio.exceptions import EncryptionError, LocalProtocolError, MembersSyncError, SendRetryError
from pydantic import JsonValue

from threads.errors import PostFailed, TransportFatal, TransportUnavailable
from transports.matrix.errors import TOKEN_CODES, MatrixRefused, failure
from transports.matrix.values import Event, Me, Room, content_of, fields, transaction
from transports.shared.link.proxy import proxy_for

log = logging.getLogger(__name__)

CLIENT = "/_matrix/client/v3"
WITHIN_S = 30.0
"""How long a request may take; a sync waits for news so long."""
UPLOAD_WITHIN_S = 300.0
PAGE = 100
MOST_BYTES = 20_000_000
"""Of one answer."""

FILTER: Mapping[str, JsonValue] = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {"ephemeral": {"types": []}, "account_data": {"types": []}, "timeline": {"limit": 50}},
}

NEW_LOGIN = "Log in again for a new access token, and set it: `threadfast init matrix` says how."


class Api:
    def __init__(self, client: nio.AsyncClient, transport: str) -> None:
        self._nio, self._transport = client, transport
        self._refused, self._knows_rooms = anyio.Event(), anyio.Event()
        self._me = Me("", "", "")

    @property
    def trouble(self) -> str:
        return ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._nio.access_token}"}

    async def until_refused(self) -> NoReturn:
        await self._refused.wait()
        raise TransportFatal(f"The homeserver does not accept the access token any more. {NEW_LOGIN}")

    async def ping(self) -> None:
        await self.call("GET", "/_matrix/client/versions")

    async def log_in(self, keys: Path) -> Me:
        """Ask who the bot is, and open its encryption keys. Raises `TransportFatal` for a token without a device."""
        try:
            who = await self.call("GET", f"{CLIENT}/account/whoami")
        except MatrixRefused as refused:
            raise TransportFatal(
                f"The homeserver does not accept the access token ({refused}). {NEW_LOGIN}"
            ) from refused
        user, device = str(who.get("user_id", "")), str(who.get("device_id", ""))
        if not (user and device):
            raise TransportFatal(f"The access token belongs to no device. {NEW_LOGIN}")
        profile = await self._optional(f"{CLIENT}/profile/{quote(user)}/displayname")
        self._me = Me(user, device, str(profile.get("displayname") or user[1:].partition(":")[0]))
        self._open_keys(keys)
        return self._me

    def room(self, id_: str) -> Room:
        """Return a room as the last sync left it."""
        known = self._nio.rooms.get(id_)
        direct = known and len({*known.users, *known.invited_users}) == 2 and known.named_room_name() is None
        return Room(id_, self._transport, self._me.server, bool(direct), bool(known and known.encrypted))

    def name_of(self, room: str, person: str) -> str:
        known = self._nio.rooms.get(room)
        return (known.user_name(person) if known else None) or person[1:].partition(":")[0]

    async def sync(self, since: str, *, full: bool) -> nio.SyncResponse:
        """Wait for news since a token, at most half a minute. *full*: tell all about the rooms, at once."""
        self._nio.next_batch = ""  # what could not be stored comes again, and nio skips what it saw
        timeout = 0 if full else int(WITHIN_S * 1000)
        sync = self._nio.sync(timeout, dict(FILTER), since or None, full)
        answer: nio.SyncResponse = await self._answer("sync", sync, 3 * WITHIN_S)
        self._knows_rooms.set()
        return answer

    async def exchange_keys(self) -> None:
        """Do what the encryption needs after a sync. A failure passes: it is needed again after the next one."""
        calls = []
        if self._nio.should_upload_keys:
            calls.append(self._nio.keys_upload())
        if self._nio.should_query_keys:
            calls.append(self._nio.keys_query())
        if self._nio.should_claim_keys:
            calls.append(self._nio.keys_claim(self._nio.get_users_for_key_claiming()))
        if self._nio.outgoing_to_device_messages:
            calls.append(self._nio.send_to_device_messages())
        for call in calls:
            try:
                await self._answer("keys", call)
            except PostFailed as error:
                log.warning("matrix.keys_failed: %s", error)

    async def send(self, room: str, kind: str, content: Mapping[str, Any], txn: str) -> str:
        """Send an event, encrypted where the room is, and return its id: the same one for the same *txn*."""
        with anyio.move_on_after(WITHIN_S):
            await self._knows_rooms.wait()  # which ones are encrypted
        if not self._knows_rooms.is_set():
            raise TransportUnavailable("the homeserver has not told about the rooms yet")
        sending = self._nio.room_send(room, kind, dict(content), txn, ignore_unverified_devices=True)
        return str((await self._answer("send", sending)).event_id)

    async def redact(self, room: str, event: str) -> None:
        path = f"{_room(room)}/redact/{quote(event)}/{transaction('redact', room, event)}"
        await self.call("PUT", path, {})

    async def typing(self, room: str, seconds: float) -> None:
        """Show for so many seconds that the bot is typing; 0 ends it."""
        body: dict[str, JsonValue] = {"typing": seconds > 0, "timeout": int(seconds * 1000)}
        await self.call(
            "PUT", f"{_room(room)}/typing/{quote(self._me.id)}", body if seconds else {"typing": False}
        )

    async def read(self, room: str, event: str) -> None:
        """Show that the bot has read up to an event."""
        await self.call("POST", f"{_room(room)}/receipt/m.read/{quote(event)}", {})

    async def event(self, room: str, event: str) -> Event:
        """Return an event as it is after its last edit, decrypted if that is possible."""
        return self.readable(room, await self.call("GET", f"{_room(room)}/event/{quote(event)}"))

    async def events(
        self, room: str, root: str = "", *, start: str = "", to: str = ""
    ) -> tuple[list[Event], str]:
        """Return a page of a room's events, or of those in a thread, newest first, and where the next one starts."""
        query = {
            "dir": "b",
            "limit": str(PAGE),
            **({"from": start} if start else {}),
            **({"to": to} if to else {}),
        }
        thread = f"/_matrix/client/v1/rooms/{quote(room)}/relations/{quote(root)}/m.thread"
        page = await self.call("GET", thread if root else f"{_room(room)}/messages", query=query)
        found = [self.readable(room, event) for event in page.get("chunk") or [] if isinstance(event, dict)]
        following = page.get("next_batch" if root else "end")
        return found, following if isinstance(following, str) and found else ""

    def readable(self, room: str, event: Event) -> Event:
        """Return an event and its last edit, both decrypted if that is possible."""
        opened = self._decrypted(room, event)
        edit = fields(fields(fields(event, "unsigned"), "m.relations"), "m.replace")
        if edit:
            edited = {"m.relations": {"m.replace": self._decrypted(room, edit)}}
            opened = {**opened, "unsigned": edited}
        return opened

    async def join(self, room: str) -> None:
        await self.call("POST", f"{CLIENT}/join/{quote(room)}", {})

    async def direct_room(self, person: str) -> str:
        """Return a room with a person alone, a new one if there is none."""
        for id_, room in self._nio.rooms.items():
            if person in room.users and self.room(id_).direct:
                return str(id_)
        body: dict[str, JsonValue] = {"invite": [person], "is_direct": True, "preset": "trusted_private_chat"}
        made = str((await self.call("POST", f"{CLIENT}/createRoom", body)).get("room_id"))
        self._nio.rooms.setdefault(made, nio.MatrixRoom(made, self._me.id))
        return made

    async def most_bytes(self) -> int:
        """Return how many bytes a file may have."""
        config = await self._optional("/_matrix/client/v1/media/config")
        size = config.get("m.upload.size")
        return size if isinstance(size, int) else 10 * 2**20

    async def upload(self, room: str, file: Path, name: str, media_type: str) -> dict[str, Any]:
        """Upload a file, encrypted where the room is; return the part of an event's content that names it."""
        encrypt, size = self.room(room).encrypted, (await anyio.Path(file).stat()).st_size
        with file.open("rb") as content:
            sending = self._nio.upload(content, media_type, name, encrypt, filesize=size)
            answer, keys = await self._answer("upload", sending, UPLOAD_WITHIN_S)
        return {"file": {**keys, "url": answer.content_uri}} if keys else {"url": answer.content_uri}

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, JsonValue] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Make a request and return the object in the answer. Raises `PostFailed`."""
        what = path.rpartition("/")[2] if method == "GET" else path.split("/")[-2]
        full = path + (
            "?" + "&".join(f"{name}={quote(value)}" for name, value in query.items()) if query else ""
        )
        data, headers = (
            None if body is None else json.dumps(body),
            {**self.headers, "Content-Type": "application/json"},
        )
        try:
            with anyio.fail_after(WITHIN_S):
                response = await self._nio.send(method, full, data, headers)
                async with response:
                    text = await response.content.read(MOST_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransportUnavailable(f"{what}: {type(error).__name__}", maybe_posted=True) from None
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        answer = answer if isinstance(answer, dict) else {}
        if response.status != 200:
            self._raise(
                what,
                response.status,
                str(answer.get("errcode", "")),
                str(answer.get("error", "")),
                answer.get("retry_after_ms"),
            )
        return answer

    async def _optional(self, path: str) -> dict[str, Any]:
        try:
            return await self.call("GET", path)
        except MatrixRefused:
            return {}

    async def _answer(self, what: str, call: Awaitable[Any], within_s: float = 2 * WITHIN_S) -> Any:
        """Return what a call of nio answers. Raises `PostFailed` for its errors, which are values or of its own."""
        try:
            with anyio.fail_after(within_s):
                answer = await call
        except (aiohttp.ClientError, TimeoutError, OSError, MembersSyncError, SendRetryError) as error:
            raise TransportUnavailable(f"{what}: {type(error).__name__}", maybe_posted=True) from None
        except LocalProtocolError as error:  # a room that it is not in
            raise MatrixRefused(f"{what}: {error}", "M_FORBIDDEN", 403) from error
        except EncryptionError as error:
            raise TransportUnavailable(f"{what}: {type(error).__name__}: {error}") from error
        first = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(first, nio.ErrorResponse):
            status = getattr(first.transport_response, "status", 0)
            self._raise(what, status, first.status_code or "", first.message, first.retry_after_ms)
        return answer

    def _raise(self, what: str, status: int, code: str, message: str, retry_ms: object) -> NoReturn:
        if code in TOKEN_CODES:
            self._refused.set()
        raise failure(what, status, code, message, retry_ms)

    def _decrypted(self, room: str, event: Event) -> Event:
        if event.get("type") != "m.room.encrypted" or not content_of(event) or self._nio.olm is None:
            return event
        encrypted = nio.Event.parse_encrypted_event({**event, "room_id": room})
        if not isinstance(encrypted, nio.MegolmEvent):
            return event
        encrypted.room_id = room
        try:
            return dict(self._nio.decrypt_event(encrypted).source)
        except EncryptionError:
            return event

    def _open_keys(self, folder: Path) -> None:
        """Open the keys below a folder that nobody else can read."""
        folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(folder / "keys.db", os.O_CREAT | os.O_RDWR, 0o600))
        self._nio.store_path = str(folder)
        self._nio.restore_login(self._me.id, self._me.device, self._nio.access_token)


@asynccontextmanager
async def open_api(homeserver: str, token: str, transport: str) -> AsyncIterator[Api]:
    config = nio.AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0, store_name="keys.db")
    client = nio.AsyncClient(homeserver.rstrip("/"), config=config, proxy=proxy_for(homeserver))
    client.access_token = token
    try:
        yield Api(client, transport)
    finally:
        with anyio.CancelScope(shield=True):
            await client.close()


def _room(id_: str) -> str:
    return f"{CLIENT}/rooms/{quote(id_)}"
