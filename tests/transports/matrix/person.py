"""Somebody in a Matrix room, with a client that is not ours: what it shows is what a person sees."""

from __future__ import annotations

import io
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import anyio
import nio
from nio.crypto import decrypt_attachment

from tests.patience import WITHIN_S
from tests.transports.matrix.synapse import Synapse
from threads.background import background_tasks

PASSWORD = "a password"
ENCRYPTION = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
CONFIG = nio.AsyncClientConfig(store_sync_tokens=False, max_timeout_retry_wait_time=0.2)
UNREADABLE = "** Unable to decrypt **"

Content = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Shown:
    """A message as a client shows it: with its last edit and the reactions to it, which are who set each of them."""

    id: str
    sender: str
    content: Content
    thread: str = ""
    """The root of its thread, none for a message of the room itself."""
    edited: int = 0
    """How often it was edited."""
    reactions: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def body(self) -> str:
        return str(self.content.get("body", UNREADABLE))

    @property
    def html(self) -> str:
        return str(self.content.get("formatted_body", ""))


class Person:
    """A person with one device, who sees all that comes into their rooms while the block of `person` runs."""

    def __init__(self, client: nio.AsyncClient) -> None:
        self.client = client
        self.typing: dict[str, list[str]] = {}
        self.invitations: set[str] = set()
        self.receipts: dict[tuple[str, str], str] = {}
        """What everybody has read last, by room and person."""
        self._events: dict[str, dict[str, nio.Event]] = defaultdict(dict)
        self._news = anyio.Condition()

    @property
    def id(self) -> str:
        return str(self.client.user_id)

    @property
    def headers(self) -> dict[str, str]:
        """Return what says who a request is from."""
        return {"Authorization": f"Bearer {self.client.access_token}"}

    # rooms

    async def direct(self, *others: str, encrypted: bool = False) -> str:
        """Open a direct room with others, and return it."""
        return await self._create(others, encrypted=encrypted, is_direct=True)

    async def channel(self, *others: str, encrypted: bool = False, public: bool = False) -> str:
        return await self._create(
            others, encrypted=encrypted, name=f"room {uuid.uuid4().hex[:6]}", public=public
        )

    async def _create(
        self, others: tuple[str, ...], *, encrypted: bool, public: bool = False, **more: Any
    ) -> str:
        preset = nio.RoomPreset.public_chat if public else nio.RoomPreset.private_chat
        state = [ENCRYPTION] if encrypted else []
        made = await self.client.room_create(invite=others, initial_state=state, preset=preset, **more)
        room = str(_good(made).room_id)
        await self.until(lambda: room in self.client.rooms)
        return room

    async def invite(self, room: str, other: str) -> None:
        _good(await self.client.room_invite(room, other))

    async def join(self, room: str) -> None:
        _good(await self.client.join(room))
        await self.until(lambda: room in self.client.rooms)

    async def until_joined(self, room: str, other: str) -> None:
        await self.until(lambda: other in self._joined(room))

    def _joined(self, room: str) -> set[str]:
        there = self.client.rooms[room]
        return set(there.users) - set(there.invited_users)

    # what a person does

    async def say(
        self,
        room: str,
        text: str,
        *,
        thread: str = "",
        to: str = "",
        reply: str = "",
        modern: bool = True,
        **more: Any,
    ) -> str:
        """Say something *to* somebody or to nobody, and return its id.

        It is in a *thread* or in the room itself, and may *reply* to another message. See `words`.
        """
        content = {**words(text, to, modern=modern), **more}
        if thread:
            back = {"is_falling_back": not reply, "m.in_reply_to": {"event_id": reply or thread}}
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": thread, **back}
        elif reply:
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply}}
        return await self.send(room, content)

    async def send(self, room: str, content: Content, kind: str = "m.room.message") -> str:
        txn = uuid.uuid4().hex
        while True:
            with suppress(aiohttp.ClientPayloadError):  # see `follow`
                sent = await self.client.room_send(room, kind, content, txn, ignore_unverified_devices=True)
                return str(_good(sent).event_id)

    async def edit(self, room: str, message: str, text: str, *, to: str = "") -> str:
        new = words(text, to)
        relation = {"rel_type": "m.replace", "event_id": message}
        old = {"msgtype": "m.text", "body": f"* {new['body']}", "m.mentions": {}}
        return await self.send(room, {**old, "m.new_content": new, "m.relates_to": relation})

    async def redact(self, room: str, event: str) -> None:
        _good(await self.client.room_redact(room, event))

    async def react(self, room: str, message: str, key: str) -> str:
        relation = {"rel_type": "m.annotation", "event_id": message, "key": key}
        return await self.send(room, {"m.relates_to": relation}, "m.reaction")

    async def read(self, room: str, event: str, thread: str = "main") -> None:
        _good(await self.client.update_receipt_marker(room, event, thread_id=thread))

    async def upload(
        self, room: str, name: str, content: bytes, kind: str = "text/plain", *, text: str = "", **said: Any
    ) -> str:
        """Send a file, with a caption if there is *text*; *said* is as for `say`."""
        encrypted = self.client.rooms[room].encrypted
        answer, keys = await self.client.upload(
            lambda *_: io.BytesIO(content), kind, name, encrypt=encrypted, filesize=len(content)
        )
        where = (
            {"file": {**keys, "url": _good(answer).content_uri}}
            if keys
            else {"url": _good(answer).content_uri}
        )
        about = {"msgtype": "m.file", "filename": name, "info": {"mimetype": kind, "size": len(content)}}
        return await self.say(room, text or name, **said, **about, **where)

    # what a person sees

    def shown(self, room: str, thread: str | None = None) -> list[Shown]:
        """Return the messages of a room, or of one thread without its root, in their order as a client shows them."""
        messages = show(self.events(room))
        return [message for message in messages if thread is None or message.thread == thread]

    def events(self, room: str) -> list[Content]:
        return [event.source for event in self._events[room].values()]

    def bodies(self, room: str, thread: str | None = None, by: str = "") -> list[str]:
        return [one.body for one in self.shown(room, thread) if by in ("", one.sender)]

    async def content(self, message: Shown) -> bytes:
        """Return what is in a file."""
        file = message.content.get("file", {})
        held = _good(await self.client.download(file.get("url") or message.content["url"])).body
        return (
            decrypt_attachment(held, file["key"]["k"], file["hashes"]["sha256"], file["iv"]) if file else held
        )

    async def until(self, condition: Callable[[], T]) -> T:
        """Wait for what comes into a room, and return what *condition* found."""
        with anyio.fail_after(WITHIN_S):
            async with self._news:
                while not (found := condition()):
                    await self._news.wait()
        return found

    async def until_shown(self, room: str, words: str, thread: str | None = None) -> Shown:
        """Wait for a message of somebody else with these words."""

        def found() -> Shown | None:
            there = (one for one in self.shown(room, thread) if one.sender != self.id and words in one.body)
            return next(there, None)

        message = await self.until(found)
        assert message
        return message

    # what comes

    async def _take(self, synced: nio.SyncResponse) -> None:
        self.invitations |= {*synced.rooms.invite}
        for room, info in synced.rooms.join.items():
            known, new = self._events[room], info.timeline.events
            missed = await self._gap(room, info.timeline.prev_batch) if info.timeline.limited else []
            known |= {event.event_id: event for event in [*missed, *new] if event.event_id not in known}
            for one in info.ephemeral:
                if isinstance(one, nio.TypingNoticeEvent):
                    self.typing[room] = one.users
                elif isinstance(one, nio.ReceiptEvent):
                    self.receipts |= {(room, read.user_id): read.event_id for read in one.receipts}
        for known in self._events.values():
            for event in [one for one in known.values() if isinstance(one, nio.MegolmEvent)]:
                with suppress(nio.EncryptionError):  # its key has not come yet
                    known[event.event_id] = self.client.decrypt_event(event)
        async with self._news:
            self._news.notify_all()

    async def _gap(self, room: str, before: str) -> list[nio.Event]:
        """Return what came between what is known and a place in the room's history."""
        missed: list[nio.Event] = []
        place: str | None = before
        while place:
            page = _good(await self.client.room_messages(room, place, limit=100))
            missed += page.chunk
            place = None if any(one.event_id in self._events[room] for one in page.chunk) else page.end
        return missed[::-1]

    async def follow(self) -> None:
        self.client.add_response_callback(self._take, nio.SyncResponse)
        while True:
            # the homeserver died amid an answer, where nio gives up
            with suppress(aiohttp.ClientPayloadError):
                await self.client.sync_forever(timeout=30_000, full_state=True)


def words(text: str, to: str = "", *, modern: bool = True) -> Content:
    """Return the content of a message; clients before 2023, which are not *modern*, name people by a link alone."""
    content: Content = {"msgtype": "m.text", "body": text}
    if to:
        name = to[1:].partition(":")[0]
        link = f'<a href="https://matrix.to/#/{to}">{name}</a>: {escape(text)}'
        content |= {"body": f"{name}: {text}", "format": "org.matrix.custom.html", "formatted_body": link}
    if modern:
        content["m.mentions"] = {"user_ids": [to]} if to else {}
    return content


def show(events: list[Content]) -> list[Shown]:
    """Return the messages in a room's events as a client shows them."""
    gone = {
        one.get("redacts") or one["content"].get("redacts")
        for one in events
        if one["type"] == "m.room.redaction"
    }
    shown: dict[str, Shown] = {}
    for event in events:
        content, relation = event["content"], event["content"].get("m.relates_to", {})
        to = shown.get(relation.get("event_id", ""))
        if event["event_id"] in gone or "redacted_because" in event.get("unsigned", {}):
            continue
        if relation.get("rel_type") == "m.replace":
            if to and to.sender == event["sender"] and "m.new_content" in content:
                shown[to.id] = replace(to, content=content["m.new_content"], edited=to.edited + 1)
        elif event["type"] == "m.reaction" and to:
            who = to.reactions.get(relation["key"], frozenset()) | {event["sender"]}
            shown[to.id] = replace(to, reactions={**to.reactions, relation["key"]: who})
        elif event["type"] in ("m.room.message", "m.room.encrypted"):
            thread = relation["event_id"] if relation.get("rel_type") == "m.thread" else ""
            shown[event["event_id"]] = Shown(event["event_id"], event["sender"], content, thread)
    return list(shown.values())


async def account(
    synapse: Synapse, name: str = "bot", *, of: str = ""
) -> nio.RegisterResponse | nio.LoginResponse:
    """Make an account, or with *of* another device for that one; nothing has used its token yet."""
    client = nio.AsyncClient(synapse.url, of)
    try:
        made = client.login(PASSWORD) if of else client.register(f"{name}-{uuid.uuid4().hex[:8]}", PASSWORD)
        return _good(await made)
    finally:
        await client.close()


@asynccontextmanager
async def person(
    name: str = "ann", *, synapse: Synapse, folder: Path, device_of: Person | None = None
) -> AsyncIterator[Person]:
    """Somebody new, or with *device_of* another device of the same person, until the block ends.

    *folder* keeps the keys of the device.
    """
    made = await account(synapse, name, of=device_of.id if device_of else "")
    store = folder / made.device_id
    store.mkdir()
    client = nio.AsyncClient(synapse.url, made.user_id, made.device_id, store_path=str(store), config=CONFIG)
    try:
        client.restore_login(made.user_id, made.device_id, made.access_token)
        someone = Person(client)
        async with background_tasks() as tasks:
            tasks.start_soon(someone.follow)
            yield someone
    finally:
        with anyio.CancelScope(shield=True):
            await client.close()


def _good(answer: T) -> Any:
    """Return an answer that is not an error."""
    assert not isinstance(answer, nio.ErrorResponse), answer
    return answer
