"""Events of the rooms on their way to the sink, and the sync that brings them.

The sync is a cursor that the homeserver keeps: its token is stored behind what it brought, so a kill or a disk that
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
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cachetools import LRUCache
from nio import InviteMemberEvent, SyncResponse

from threads.errors import TransportRejected
from threads.model import Author, Deleted, Feedback, Incoming, Outcome, Sink, ThreadId
from threads.store.json_file import JsonState, State
from transports.matrix import render
from transports.matrix.api import Api
from transports.matrix.parse import SPOKEN, parse_edit, parse_message, replied_to, sent_s, words_of
from transports.matrix.posting import THUMBS, choices_of
from transports.matrix.values import (
    Event,
    Mark,
    Me,
    Room,
    content_of,
    encoded,
    fields,
    mark_of,
    newest_content,
    relation,
    transaction,
)
from transports.shared.bot_loop_guard import BotLoopGuard

log = logging.getLogger(__name__)

MOST_PAGES = 50
"""Pages of 100 events that are read to close a gap in one room."""
MOST_LOCKED = 200
"""Events that cannot be decrypted yet and are kept; beyond, the oldest are given up."""
LOCKED_S = 20.0
"""How old such an event is before its room is told."""
KNOWN = 10_000

LOCKED = (
    "I cannot read what was written here: this room is encrypted, and your app did not give me the key. "
    "Write it once more; if that does not help, end and begin the session of your app, or invite me again."
)


Locked = tuple[tuple[str, str], ...]
"""Rooms and events in them."""


class SyncState(JsonState):
    """Where the sync goes on, and the events, with their rooms, that were not readable so far."""

    token: str = ""
    locked: Locked = ()


class Intake:
    """``may_invite`` returns whether a person may have the bot in a room. ``now_s`` is the time since 1970."""

    def __init__(
        self,
        api: Api,
        me: Me,
        sink: Sink,
        state: State[SyncState],
        *,
        bots: Collection[str],
        max_age_s: float,
        feedback: bool,
        may_invite: Callable[[str, Room], bool],
        now_s: Callable[[], float],
        count_unread: Callable[[str], None],
    ) -> None:
        self._api, self._me, self._sink, self._state = api, me, sink, state
        self._bots, self._max_age_s, self._feedback = bots, max_age_s, feedback
        self._may_invite, self._now_s, self._count_unread = may_invite, now_s, count_unread
        self._loop_guard = BotLoopGuard(frozenset(bots))
        self._threads: LRUCache[str, ThreadId] = LRUCache(KNOWN)
        self._told: set[str] = set()

    async def run(self, connected: Callable[[], None]) -> None:
        """Receive until the link is down, as `PostFailed` says. Raises `StoreUnavailable` if the disk refuses."""
        full = True
        while True:
            since = self._state.value.token
            answer = await self._api.sync(since, full=full)
            connected()
            locked, token = await self._take(answer, since), answer.next_batch
            await self._state.change(partial(_at, token, locked))
            await self._api.exchange_keys()
            full = False

    async def _take(self, answer: SyncResponse, since: str) -> Locked:
        """Hand over what a sync brought. Returns the events that cannot be read yet."""
        for room_id, invitation in answer.rooms.invite.items():
            await self._invited(room_id, invitation.invite_state)
        locked = [one for one in self._state.value.locked if not await self._unlocked(*one)]
        for room_id, joined in answer.rooms.join.items():
            events: list[Event] = [
                event.source for event in joined.timeline.events if hasattr(event, "source")
            ]
            if not since:
                continue  # what was said before the bot ever ran is not for it
            if joined.timeline.limited:
                events = [*await self._missed(room_id, joined.timeline.prev_batch or "", since), *events]
            for event in self._since_invited(events):
                if event.get("type") == "m.room.encrypted" and content_of(event):
                    locked.append((room_id, str(event.get("event_id"))))
                else:
                    await self._take_event(event, self._api.room(room_id))
        return tuple(dict.fromkeys(locked))[-MOST_LOCKED:]

    async def _missed(self, room: str, start: str, since: str) -> Sequence[Event]:
        """Return what the gap before a timeline holds, oldest first."""
        found = list[Event]()
        for _ in range(MOST_PAGES):
            page, start = await self._api.events(room, start=start, to=since)
            found += page
            if not start or any(self._is_invitation(event) for event in page):
                break
        else:
            log.warning(
                "catch_up.given_up: what was missed in %s before %d events stays unread", room, len(found)
            )
        return found[::-1]

    def _since_invited(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return what follows the last invitation of the bot, or its coming in without one; else all."""
        ours = [n for n, event in enumerate(events) if self._is_invitation(event)]
        return events[ours[-1] + 1 :] if ours else events

    def _is_invitation(self, event: Event) -> bool:
        """Return whether an event lets the bot in: an invitation, or a way in without one."""
        if event.get("type") != "m.room.member" or event.get("state_key") != self._me.id:
            return False
        before = fields(fields(event, "unsigned"), "prev_content").get("membership", "leave")
        match content_of(event).get("membership"):
            case "invite":
                return True
            case "join":
                return before not in ("join", "invite")
        return False

    async def _invited(self, room_id: str, state: Sequence[Any]) -> None:
        members = (event for event in state if isinstance(event, InviteMemberEvent))
        inviters = [event.sender for event in members if event.state_key == self._me.id]
        if inviters and self._may_invite(inviters[-1], self._api.room(room_id)):
            await self._join(room_id)
        else:
            log.info("matrix.invitation_ignored: to %s by %s", room_id, *inviters[-1:] or ["nobody"])

    async def _join(self, room_id: str) -> None:
        try:
            await self._api.join(room_id)
        except TransportRejected as refused:
            log.warning("matrix.not_joined: %s: %s", room_id, refused)

    async def _unlocked(self, room_id: str, event_id: str) -> bool:
        """Hand over an event that could not be read before; return whether it is done with."""
        try:
            event = await self._api.event(room_id, event_id)
        except TransportRejected:
            return True
        if event.get("type") != "m.room.encrypted" or not content_of(event):
            await self._take_event(event, self._api.room(room_id))
            return True
        if self._now_s() - sent_s(event) < LOCKED_S:
            return False
        self._count_unread("encrypted")
        if room_id not in self._told and event.get("sender") != self._me.id:
            self._told.add(room_id)
            related = render.in_thread(relation(event, "m.thread"), event_id)
            notice = render.content(LOCKED, Mark(event_id), related, notice=True)
            await self._api.send(room_id, "m.room.message", notice, transaction(event_id, "locked"))
        return True

    async def _take_event(self, event: Event, room: Room) -> None:
        sender, kind = event.get("sender"), event.get("type")
        if sender == self._me.id or not isinstance(sender, str) or not isinstance(event.get("event_id"), str):
            return
        if kind == "m.room.redaction":
            target = event.get("redacts") or content_of(event).get("redacts")
            if isinstance(target, str):
                await self._sink(Deleted(encoded(target), self._threads.get(target) or room.thread(target)))
        elif kind == "m.reaction":
            await self._take_reaction(event, room, sender)
        elif kind == "m.room.tombstone":
            successor = content_of(event).get("replacement_room")
            if isinstance(successor, str):
                await self._join(successor)
        elif target := relation(event, "m.replace"):
            await self._take_edit(event, room, target)
        elif kind in SPOKEN:
            await self._take_message(event, room)

    async def _take_message(self, event: Event, room: Room) -> None:
        name = self._api.name_of(room.id, str(event["sender"]))
        stale = self._now_s() - sent_s(event) > self._max_age_s
        parse = partial(parse_message, event, room, self._me, bots=self._bots, name=name, stale=stale)
        if (incoming := parse()) is None:
            return
        if target := replied_to(event):
            incoming = parse(quoted=await self._quoted(room, target)) or incoming
        await self._hand_over(incoming, str(event["event_id"]))

    async def _take_edit(self, event: Event, room: Room, target: str) -> None:
        """Hand over an edit; one that calls the bot for the first time is a new message as well."""
        edited = parse_edit(event, room, self._me)
        if edited is None:
            return
        if (thread := self._threads.get(target)) is None:
            whole = await self._optional(room.id, target)
            incoming = parse_message(whole, room, self._me, bots=self._bots) if whole else None
            thread = incoming.thread if incoming else room.thread(relation(whole, "m.thread") or target)
            if incoming and incoming.via == "mention" and whole.get("sender") == event.get("sender"):
                await self._sink(replace(edited, thread=thread))
                await self._take_message(
                    {**whole, "content": newest_content(event)}
                    | {
                        "content": {
                            **newest_content(whole),
                            "m.relates_to": fields(content_of(whole), "m.relates_to"),
                        }
                    },
                    room,
                )
                return
        await self._sink(replace(edited, thread=thread))

    async def _take_reaction(self, event: Event, room: Room, sender: str) -> None:
        target, sign = relation(event, "m.annotation"), fields(content_of(event), "m.relates_to").get("key")
        posted = await self._optional(room.id, target) if target and isinstance(sign, str) else {}
        if posted.get("sender") != self._me.id or not isinstance(sign, str):
            return
        thread = room.thread(relation(posted, "m.thread") or ("" if room.direct else target))
        author = Author(sender, self._api.name_of(room.id, sender))
        id_ = encoded(str(event["event_id"]))
        if command := choices_of(posted).get(sign):
            await self._hand_over(Incoming(id_, thread, author, str(command)), str(event["event_id"]))
        elif sign == "🛑" and mark_of(posted).get("final") is False:
            await self._hand_over(Incoming(id_, thread, author, "/stop"), str(event["event_id"]))
        elif self._feedback and (
            verdict := THUMBS.get(sign.rstrip("\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"))
        ):
            await self._sink(Feedback(id_, thread, author, encoded(target), verdict))

    async def _hand_over(self, incoming: Incoming, event_id: str) -> Outcome | None:
        if not self._loop_guard.admits(incoming):
            return None
        self._threads[event_id] = incoming.thread
        return await self._sink(incoming)

    async def _quoted(self, room: Room, target: str) -> str:
        """Return what a message replies to, with its author's name; a blank if that cannot be read."""
        event = await self._optional(room.id, target)
        words = words_of(event.get("type"), newest_content(event)) if event.get("type") in SPOKEN else ""
        return f"{self._api.name_of(room.id, str(event['sender']))}: {words}" if words else ""

    async def _optional(self, room: str, event: str) -> Event:
        try:
            return await self._api.event(room, event)
        except TransportRejected:
            return {}


def _at(token: str, locked: Locked, old: SyncState) -> SyncState:
    return old.model_copy(update={"token": token, "locked": locked})
