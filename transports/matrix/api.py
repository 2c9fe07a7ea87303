"""The homeserver's client API, over nio: nio encrypts, keeps the keys and follows the members of rooms.

nio answers errors as values, and would wait by itself after a rate limit. Here they are raised, and only the outbox
waits. https://spec.matrix.org/v1.16/client-server-api/
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

import aiohttp
import anyio
import nio
from nio.exceptions import EncryptionError, LocalProtocolError

from threads.errors import PostFailed, TransportFatal, TransportRejected, TransportUnavailable
from transports.matrix.errors import failure
from transports.matrix.values import Event, Me, Room, content_of, edit_of, fields, transaction
from transports.shared.link.proxy import proxy_for

log = logging.getLogger(__name__)

CLIENT, NEWER = "/_matrix/client/v3", "/_matrix/client/v1"
WITHIN_S, UPLOAD_WITHIN_S = 30.0, 300.0
"""How long a request may take, and an upload. A sync waits for news as long as a request."""
PAGE = 100
NOTHING = {"types": list[str]()}
ROOM = {"ephemeral": NOTHING, "account_data": NOTHING, "timeline": {"limit": 50}}
FILTER = {"presence": NOTHING, "account_data": NOTHING, "room": ROOM}
REFUSED = "The homeserver does not accept the access token, or it has no device: run `threadfast init matrix` again."

Fields = Mapping[str, Any]
Page = tuple[list[Event], str]


class Api:
    def __init__(self, client: nio.AsyncClient, transport: str) -> None:
        self._nio, self._transport, self.me = client, transport, Me("", "")
        self._refused, self._knows_rooms = anyio.Event(), anyio.Event()

    async def until_refused(self) -> NoReturn:
        await self._refused.wait()
        raise TransportFatal(REFUSED)

    async def ping(self) -> None:
        await self.call("GET", "/_matrix/client/versions")

    async def log_in(self) -> str:
        """Ask who the bot is, and return its device. Raises `TransportFatal` for a token that is not good."""
        who = await self.find(f"{CLIENT}/account/whoami")
        if not who.get("device_id"):
            raise TransportFatal(REFUSED)
        user = str(who["user_id"])
        profile = await self.find(f"{CLIENT}/profile/{quote(user)}")
        self.me = Me(user, str(profile.get("displayname") or user[1:].partition(":")[0]))
        return str(who["device_id"])

    def open_keys(self, folder: Path, device: str) -> None:
        """Open the keys for encrypted rooms, in a folder that nobody else can read."""
        folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(folder / "keys.db", os.O_CREAT | os.O_RDWR, 0o600))
        self._nio.store_path = str(folder)
        self._nio.restore_login(self.me.id, device, self._nio.access_token)

    def room(self, id_: str) -> Room:
        """Return a room as the last sync left it. One of two people without a name is direct."""
        known = self._nio.rooms.get(id_)
        direct = known and len({*known.users, *known.invited_users}) == 2 and known.named_room_name() is None
        server = self.me.id.partition(":")[2]
        return Room(id_, self._transport, server, bool(direct), bool(known and known.encrypted))

    def name_of(self, room: str, person: str) -> str:
        known = self._nio.rooms.get(room)
        return (known.user_name(person) if known else None) or person[1:].partition(":")[0]

    async def sync(self, since: str, *, full: bool) -> nio.SyncResponse:
        """Wait for news since a token, at most half a minute. *full*: tell all about the rooms, at once."""
        self._nio.next_batch = ""  # what could not be stored comes again, and nio would skip it
        sync = self._nio.sync(0 if full else int(WITHIN_S * 1000), FILTER, since or None, full)
        answer: nio.SyncResponse = await self._answer("sync", sync, 3 * WITHIN_S)
        self._knows_rooms.set()
        return answer

    async def exchange_keys(self) -> None:
        """Do what the encryption needs after a sync. What fails is needed again after the next one."""
        client = self._nio
        users = client.get_users_for_key_claiming() if client.should_claim_keys else {}
        calls: list[Callable[[], Awaitable[Any]]] = [self._upload_keys] if client.should_upload_keys else []
        calls += [client.keys_query] if client.should_query_keys else []
        calls += [partial(client.keys_claim, users)] if users else []
        for call in (*calls, client.send_to_device_messages):
            try:
                await self._answer("keys", call())
            except PostFailed as error:
                log.warning("matrix.keys_failed: %s", error)

    async def _upload_keys(self) -> nio.KeysUploadResponse | nio.KeysUploadError:
        """Upload keys that are on disk, which nio writes afterwards: a death in between would lose them for good."""
        assert self._nio.olm
        keys = self._nio.olm.share_keys()
        self._nio.olm.save_account()
        answer: nio.KeysUploadResponse | nio.KeysUploadError = await self._nio._send(  # noqa: SLF001
            nio.KeysUploadResponse, *nio.Api.keys_upload(self._nio.access_token, keys)
        )
        return answer

    async def send(self, room: str, content: Fields, txn: str, kind: str = "m.room.message") -> str:
        """Send an event, encrypted where the room is, and return its id: the same one for the same *txn*."""
        with anyio.move_on_after(WITHIN_S):
            await self._knows_rooms.wait()  # which ones are encrypted
        if not self._knows_rooms.is_set():
            raise TransportUnavailable("the homeserver has not told about the rooms yet")
        sending = self._nio.room_send(room, kind, dict(content), txn, ignore_unverified_devices=True)
        return str((await self._answer("send", sending)).event_id)

    async def redact(self, room: str, event: str) -> None:
        await self.call("PUT", in_room(room, "redact", event, transaction("redact", room, event)), {})

    async def event(self, room: str, event: str) -> Event:
        """Return an event as it is after its last edit; one that is not there, or not for the bot, is empty."""
        return self._readable(room, await self.find(in_room(room, "event", event)))

    async def events(self, room: str, root: str = "", start: str = "", to: str = "") -> Page:
        """Return events of a room, or of a thread in it, newest first, and where the next page starts."""
        path = in_room(room, *(("relations", root, "m.thread") if root else ("messages",)))
        path, bounds = path.replace(CLIENT, NEWER) if root else path, {"from": start, "to": to}
        query = {"dir": "b", "limit": PAGE} | {name: value for name, value in bounds.items() if value}
        page = await self.call("GET", f"{path}?{urlencode(query)}")
        found = [self._readable(room, event) for event in page.get("chunk") or ()]
        return found, str(page.get("next_batch" if root else "end") or "") if found else ""

    async def direct_room(self, person: str) -> str:
        """Return a room with a person alone, a new one if there is none."""
        shared = (str(id_) for id_, room in self._nio.rooms.items() if person in room.users)
        if found := next((id_ for id_ in shared if self.room(id_).direct), ""):
            return found
        body = {"invite": [person], "is_direct": True, "preset": "trusted_private_chat"}
        made = str((await self.call("POST", f"{CLIENT}/createRoom", body))["room_id"])
        self._nio.rooms.setdefault(made, nio.MatrixRoom(made, self.me.id))
        return made

    async def upload(self, room: str, file: Path, name: str, media_type: str, size: int) -> dict[str, Any]:
        """Upload a file, encrypted where the room is; return the part of an event's content that names it."""
        with file.open("rb") as content:
            sending = self._nio.upload(content, media_type, name, self.room(room).encrypted, filesize=size)
            answer, keys = await self._answer("upload", sending, UPLOAD_WITHIN_S)
        return {"file": {**keys, "url": answer.content_uri}} if keys else {"url": answer.content_uri}

    async def find(self, path: str) -> dict[str, Any]:
        """Return what is at a path; nothing if the homeserver refuses. Raises `PostFailed`."""
        try:
            return await self.call("GET", path)
        except TransportRejected:
            return {}

    async def call(self, method: str, path: str, body: Fields | None = None) -> dict[str, Any]:
        """Make a request and return the object in the answer. Raises `PostFailed`."""
        headers = {"Authorization": f"Bearer {self._nio.access_token}", "Content-Type": "application/json"}
        what = path.partition("?")[0].rpartition("/" if method == "GET" else "rooms/")[2]
        try:
            with anyio.fail_after(WITHIN_S):
                data = None if body is None else json.dumps(body)
                async with await self._nio.send(method, path, data, headers) as response:
                    answer = json.loads(await response.read())
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a proxy in between answers in HTML
            raise TransportUnavailable(f"{what}: {type(error).__name__}", maybe_posted=True) from None
        found: dict[str, Any] = answer if isinstance(answer, dict) else {}
        if response.status != 200:
            self._fail(what, response.status, *map(found.get, ("errcode", "error", "retry_after_ms")))
        return found

    async def _answer(self, what: str, call: Awaitable[Any], within_s: float = 2 * WITHIN_S) -> Any:
        """Return what a call of nio answers. Raises `PostFailed` for errors, which are values or nio's own."""
        try:
            with anyio.fail_after(within_s):
                answer = await call
        except LocalProtocolError as error:  # a room that it is not in
            raise failure(what, 403, "M_FORBIDDEN", str(error)) from error
        except (aiohttp.ClientError, OSError, EncryptionError) as error:
            raise TransportUnavailable(f"{what}: {type(error).__name__}", maybe_posted=True) from None
        refused = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(refused, nio.ErrorResponse):
            status = getattr(refused.transport_response, "status", 0)
            self._fail(what, status, refused.status_code, refused.message, refused.retry_after_ms)
        return answer

    def _fail(self, what: str, status: int, code: object, message: object, retry_ms: object) -> NoReturn:
        if status == 401:
            self._refused.set()
        raise failure(what, status, str(code or ""), str(message or ""), retry_ms)

    def _readable(self, room: str, event: Event) -> Event:
        """Return an event and its last edit, both decrypted if that is possible."""
        edit = edit_of(event)
        edited = {"m.relations": {"m.replace": self._decrypted(room, edit)}} if edit else {}
        return {**self._decrypted(room, event), "unsigned": {**fields(event, "unsigned"), **edited}}

    def _decrypted(self, room: str, event: Event) -> Event:
        if not is_locked(event) or self._nio.olm is None:
            return event
        locked = nio.Event.parse_encrypted_event({**event, "room_id": room})
        try:
            return dict(self._nio.olm.decrypt_megolm_event(locked, room).source)
        except (EncryptionError, AttributeError):  # no key, or in a form that nio does not know
            return event


def is_locked(event: Event) -> bool:
    """Return whether an event is still encrypted. One that was deleted has no content any more."""
    return event.get("type") == "m.room.encrypted" and bool(content_of(event))


def in_room(room: str, *path: str) -> str:
    return "/".join((f"{CLIENT}/rooms", *(quote(part, safe="") for part in (room, *path))))


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
