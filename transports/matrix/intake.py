"""Events of the rooms on their way to the sink, and the sync that brings them.

The sync is a cursor that the homeserver keeps. Its token is stored behind what it brought, so a kill or a disk that
refuses brings the same events again, and the journal drops those that it knows.

| what a sync brings                          | what is done                                                         |
|---------------------------------------------|----------------------------------------------------------------------|
| a timeline with a gap before it             | the gap is read from the room's history first                        |
| an invitation by somebody who may use it    | the room is joined; what was said since the invitation is read       |
| an event that cannot be decrypted           | tried again with each sync; after a while the room is told           |
| a room that was upgraded                    | its successor is joined                                              |
| a reaction to a question of ours            | the command that it stands for                                       |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from cachetools import LRUCache
from nio import InviteMemberEvent, SyncResponse

from threads.errors import PostFailed, StoreUnavailable, TransportRejected, TransportUnavailable
from threads.model import Author, Deleted, Edited, Incoming, Sink, ThreadId, WallClock
from threads.store.json_file import JsonState, State
from transports.matrix import render
from transports.matrix.api import CLIENT, Api, is_locked
from transports.matrix.parse import parse_message, replied_to, sent_at, without_name, words_of
from transports.matrix.posting import MEANINGS, STOP
from transports.matrix.values import (
    Event,
    Room,
    content_of,
    encoded,
    fields,
    mark_of,
    newest_content,
    relation,
    text,
    transaction,
)
from transports.shared.bot_loop_guard import BotLoopGuard

log = logging.getLogger(__name__)

MOST_PAGES = 50
"""Pages of 100 events that are read to close a gap in one room."""
MOST_LOCKED = 200
"""Events that cannot be decrypted yet and are kept; beyond, the oldest are given up."""
LOCKED_FOR = timedelta(seconds=20)
"""How old such an event is before its room is told."""
KNOWN = 10_000

LOCKED = (
    "I cannot read what was written here: this room is encrypted, and your app did not give me the key. "
    "Write it once more. If that does not help, log out of your app and in again, or invite me again."
)

Locked = tuple[tuple[str, str], ...]
"""Rooms, and an event in each."""


class SyncState(JsonState):
    """Where the sync goes on, and the events that could not be read so far."""

    token: str = ""
    locked: Locked = ()


class Intake:
    """``may_invite`` returns whether a person may have the bot in a room."""

    def __init__(
        self, api: Api, sink: Sink, state: State[SyncState], *, bots: frozenset[str], max_age: timedelta,
        may_invite: Callable[[str, Room], bool], now: WallClock, count_unread: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._api, self._sink, self._state, self._bots, self._max_age = api, sink, state, bots, max_age
        self._may_invite, self._now, self._count_unread = may_invite, now, count_unread
        self._loop_guard = BotLoopGuard(bots)
        self._threads: LRUCache[str, ThreadId] = LRUCache(KNOWN)
        self._told: set[str] = set()

    async def run(self, connected: Callable[[], None]) -> None:
        """Receive until the link is down, or the disk refuses an event. Raises `PostFailed`."""
        full = True
        while True:
            since = self._state.value.token
            answer = await self._api.sync(since, full=full)
            connected()
            try:
                await self._state.change(partial(_moved, answer.next_batch, await self._take(answer, since)))
            except StoreUnavailable as error:  # all of it comes again
                raise TransportUnavailable(f"an event cannot be stored: {error}") from error
            await self._api.exchange_keys()
            full = False

    async def _take(self, answer: SyncResponse, since: str) -> Locked:
        """Hand over what a sync brought. Returns the events that cannot be read yet."""
        for room_id, invitation in answer.rooms.invite.items():
            await self._invited(room_id, invitation.invite_state)
        locked = [one for one in self._state.value.locked if not await self._unlocked(*one)]
        for room_id, joined in answer.rooms.join.items():
            timeline, room = joined.timeline, self._api.room(room_id)
            events: list[Event] = [event.source for event in timeline.events if hasattr(event, "source")]
            if timeline.limited and since:
                missed = await self._missed(room_id, timeline.prev_batch or "", since)
                steps = [self._own_step(event) for event in (*missed, *events)]
                if ("invite", "join") in steps and not any(map(self._lets_in, (*missed, *events))):
                    # Invited before *since*.
                    missed = await self._missed(room_id, timeline.prev_batch or "", "")
                events = [*missed, *events]
            begin = max((n for n, event in enumerate(events, 1) if self._lets_in(event)), default=0)
            for event in events[begin:]:
                if not since and self._age(event) > self._max_age:
                    continue  # said before the bot ever ran
                if is_locked(event):
                    locked.append((room_id, text(event, "event_id")))
                else:
                    await self._take_event(event, room)
        return tuple(dict.fromkeys(locked))[-MOST_LOCKED:]

    async def _missed(self, room: str, start: str, since: str) -> Sequence[Event]:
        """Return what the gap before a timeline holds, oldest first."""
        found = list[Event]()
        for _ in range(MOST_PAGES):
            page, start = await self._api.events(room, start=start, to=since)
            found += page
            if not start or any(map(self._lets_in, page)):
                return found[::-1]
        log.warning("catch_up.given_up: what was missed in %s before %d events", room, len(found))
        return found[::-1]

    def _lets_in(self, event: Event) -> bool:
        """Return whether an event lets the bot in: an invitation, or a way in without one."""
        before, now = self._own_step(event)
        return now == "invite" or (now == "join" and before not in ("join", "invite"))

    def _own_step(self, event: Event) -> tuple[str, str]:
        """Return the bot's membership before and after an event, blanks if that is not about it."""
        if event.get("state_key") != self._api.me.id:
            return "", ""
        before = text(fields(fields(event, "unsigned"), "prev_content"), "membership") or "leave"
        return before, text(content_of(event), "membership")

    async def _invited(self, room: str, state: Sequence[Any]) -> None:
        members = (event for event in state if isinstance(event, InviteMemberEvent))
        inviter = next((event.sender for event in members if event.state_key == self._api.me.id), "")
        if inviter and self._may_invite(inviter, self._api.room(room)):
            await self._join(room)
        else:
            log.info("matrix.invitation_ignored: to %s by %s", room, inviter or "nobody")

    async def _join(self, room: str) -> None:
        try:
            await self._api.call("POST", f"{CLIENT}/join/{encoded(room)}", {})
        except TransportRejected as refused:
            log.warning("matrix.not_joined: %s: %s", room, refused)

    async def _unlocked(self, room: str, event_id: str) -> bool:
        """Hand over an event that could not be read before; return whether it is done with."""
        event = await self._api.event(room, event_id)
        if not is_locked(event):
            await self._take_event(event, self._api.room(room))
            return True
        if self._age(event) < LOCKED_FOR:
            return False
        self._count_unread("encrypted")
        if room not in self._told and event.get("sender") != self._api.me.id:
            self._told.add(room)
            content = render.content(LOCKED, {}, relation(event, "m.thread"))
            await self._api.send(room, content, transaction(event_id, "locked"))
        return True

    async def _take_event(self, event: Event, room: Room) -> None:
        try:
            await self._read_event(event, room)
        except (PostFailed, StoreUnavailable):
            raise
        except Exception:  # the boundary of one event: it would come again and again
            log.exception("matrix.event_failed: an event in %s is left out", room.id)

    async def _read_event(self, event: Event, room: Room) -> None:
        sender, kind, edited = text(event, "sender"), event.get("type"), relation(event, "m.replace")
        if sender == self._api.me.id or not text(event, "event_id"):
            return
        if kind == "m.room.redaction":
            target = text(event, "redacts") or text(content_of(event), "redacts")
            await self._sink(Deleted(encoded(target), self._threads.get(target) or room.thread(target)))
        elif kind == "m.reaction":
            await self._take_reaction(event, room)
        elif kind == "m.room.tombstone":
            await self._join(text(content_of(event), "replacement_room"))
        elif edited:
            await self._take_edit(event, room, edited)
        else:
            await self._take_message(event, room)

    async def _take_message(self, event: Event, room: Room) -> None:
        if (incoming := parse_message(event, room, self._api.me, self._bots)) is None:
            return
        author, stale = self._author(event, room), self._age(event) > self._max_age
        said = await self._api.event(room.id, target) if (target := replied_to(event)) else {}
        words = words_of(said, newest_content(said))
        quoted = f"{self._author(said, room).name}: {words}" if words else ""
        incoming = replace(incoming, author=author, stale=stale, quoted=quoted)
        await self._hand_over(incoming, text(event, "event_id"))

    def _author(self, event: Event, room: Room) -> Author:
        sender = text(event, "sender")
        return Author(sender, self._api.name_of(room.id, sender))

    async def _take_edit(self, edit: Event, room: Room, target: str) -> None:
        """Hand over an edit. One that calls the bot for the first time makes the message one to it.

        The homeserver takes edits by others too, which no client shows.
        """
        new = fields(content_of(edit), "m.new_content")
        whole = await self._api.event(room.id, target)
        if text(whole, "sender") != text(edit, "sender"):
            return
        if target not in self._threads:
            await self._take_message(whole, room)
        thread = self._threads.get(target) or room.thread(relation(whole, "m.thread") or target)
        words = words_of({"type": "m.room.message"}, new)
        await self._sink(Edited(encoded(target), thread, without_name(words, self._api.me)))

    async def _take_reaction(self, event: Event, room: Room) -> None:
        target, sign = relation(event, "m.annotation"), text(fields(content_of(event), "m.relates_to"), "key")
        posted = await self._api.event(room.id, target) if sign in MEANINGS else {}
        marked = mark_of(posted) if posted.get("sender") == self._api.me.id else {}
        stops = "/stop" if sign == STOP and marked.get("final") is False else ""
        if command := stops or text(fields(marked, "choices"), sign):
            thread = room.thread(relation(posted, "m.thread") or ("" if room.direct else target))
            event_id = text(event, "event_id")
            incoming = Incoming(encoded(event_id), thread, self._author(event, room), command)
            await self._hand_over(incoming, event_id)

    async def _hand_over(self, incoming: Incoming, event_id: str) -> None:
        if self._loop_guard.admits(incoming):
            self._threads[event_id] = incoming.thread
            await self._sink(incoming)

    def _age(self, event: Event) -> timedelta:
        return self._now() - datetime.fromisoformat(sent_at(event))


def _moved(token: str, locked: Locked, old: SyncState) -> SyncState:
    return old.model_copy(update={"token": token, "locked": locked})
