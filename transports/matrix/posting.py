"""Posts: sent once per key, in as many messages as they need, and found again.

The first message of a part has a transaction id that is made of the key: a second request, also after a crash, is
answered with the message that is there. So nothing is posted twice, and no post has to say that it may be a repeat.
What stands there already, from a live draft or an earlier process, is edited into the part.
"""

from __future__ import annotations

import logging
import mimetypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from threads.errors import PostFailed
from threads.model import Choice, Outgoing, ThreadId, Verdict
from threads.store.attachments import safe_name
from transports.base.transport import progress
from transports.matrix import render
from transports.matrix.api import Api
from transports.matrix.values import (
    Event,
    Mark,
    Me,
    decoded,
    encoded,
    key_digest,
    mark_of,
    relation,
    room_of,
    root_of,
    transaction,
)
from transports.shared.buttons import OpenQuestions
from transports.shared.delivery.closed_places import DOTS
from transports.shared.delivery.files import size_of

log = logging.getLogger(__name__)

REMEMBERED = 1_000
MOST_PAGES = 5
"""Pages of a room or thread in which a post is looked for."""

SIGNS = {"/approve": "✅", "/deny": "❌", "/stop": "🛑", "/retry": "🔁"}
NUMBERS = tuple(f"{n}\ufe0f\u20e3" for n in range(1, 10))
THUMBS: Mapping[str, Verdict] = {"👍": "up", "👎": "down"}


@dataclass(slots=True)
class _Parts:
    """The messages of one post by the number of the part; ``final`` has those that show it.

    ``unsure``: a part was sent, and no answer came. If it was sent as a draft, the message has that text.
    """

    events: dict[int, str] = field(default_factory=dict)
    final: set[int] = field(default_factory=set)
    unsure: dict[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PostedQuestion:
    room: str
    id: str
    text: str
    key: str
    reply_to: str
    thread: ThreadId


class Posting:
    def __init__(self, api: Api, me: Me, *, feedback: bool = False) -> None:
        self._api, self._me, self._feedback = api, me, feedback
        self._parts: LRUCache[str, _Parts] = LRUCache(REMEMBERED)
        self._edits = count()
        self._most_bytes = 0
        self.questions: OpenQuestions[PostedQuestion] = OpenQuestions()

    async def post(self, outgoing: Outgoing, draft: Sequence[str] = ()) -> str:
        """Post, over the messages of the *draft* as far as they go, and return the id of the first part."""
        parts = self._parts_of(outgoing.key)
        parts.events.update(enumerate(draft, 1))
        signs = signs_of(outgoing.choices)
        room, texts = (
            room_of(outgoing.thread),
            render.pages(_with_choices(outgoing.text, outgoing.choices, signs)),
        )
        with progress(parts.final):
            for part, text in enumerate(texts, 1):
                if part not in parts.final:
                    mark = Mark(
                        outgoing.key, part, of=len(texts), choices=signs if part == len(texts) else {}
                    )
                    notice = outgoing.kind == "notice" and not outgoing.choices
                    await self.show(outgoing.thread, outgoing.reply_to, mark, text, notice=notice)
                    parts.final.add(part)
        await self._redact_beyond(room, parts, len(texts))
        last = parts.events[len(texts)]
        if signs:
            question = PostedQuestion(room, last, texts[-1], outgoing.key, outgoing.reply_to, outgoing.thread)
            self.questions.add(outgoing.key, last, question)
            for sign in signs:
                await self.react(room, last, sign)
        elif self._feedback and outgoing.kind == "reply":
            for sign in THUMBS:
                await self.react(room, last, sign)
        return encoded(parts.events[1])

    async def show(
        self, thread: ThreadId, reply_to: str, mark: Mark, text: str, *, notice: bool = False
    ) -> str:
        """Send a part, or edit its message if there is one, and return the message. Raises `PostFailed`."""
        room, parts = room_of(thread), self._parts_of(mark.key)
        related = render.in_thread(root_of(thread), decoded(reply_to) if reply_to.startswith("$") else "")
        content = render.content(text, mark, related, notice=notice)
        if (event := parts.events.get(mark.part)) is None:
            was_draft = parts.unsure.get(mark.part, False)
            parts.unsure[mark.part] = was_draft or not mark.final
            event = await self._api.send(room, "m.room.message", content, transaction(mark.key, mark.part))
            parts.events[mark.part] = event
            if not was_draft:
                return event
        number = "final" if mark.final else f"{id(self)} {next(self._edits)}"
        txn = transaction(mark.key, "edit", mark.part, number)
        await self._api.send(room, "m.room.message", render.edit(event, content), txn)
        return event

    async def find(
        self, thread: ThreadId, key: str, *, live: Collection[str], alone: Callable[[], bool] = lambda: True
    ) -> str | None:
        """Return the id of the first part if all of the post is known to be out. Raises `PostFailed`.

        What is unfinished is remembered, and edited into the post.
        """
        parts, of = self._parts_of(key), None
        for event in await self._look(thread, key):
            mark, id_ = mark_of(event), event.get("event_id")
            if isinstance(part := mark.get("part"), int) and isinstance(id_, str):
                parts.events[part] = id_
                if mark.get("final"):
                    parts.final.add(part)
                    of = mark.get("of")
        return (
            encoded(parts.events[1]) if of and parts.final == {*range(1, of + 1)} == {*parts.events} else None
        )

    async def sweep(self, thread: ThreadId, key: str) -> None:
        """Delete what a killed process left unfinished of a post that will not come. Raises `PostFailed`."""
        await self.find(thread, key, live=())
        parts = self._parts_of(key)
        for part in {*parts.events} - parts.final:
            await self._api.redact(room_of(thread), parts.events.pop(part))

    async def clear(self, thread: ThreadId, key: str, draft: Sequence[str]) -> None:
        """Do nothing: `post` writes over the messages of a draft, and deletes those that it did not need."""

    async def remove(self, thread: ThreadId, key: str) -> None:
        """Delete all messages of a post that will not come."""
        await self._redact_beyond(room_of(thread), self._parts_of(key), 0)

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Post a file to the thread under this name. Raises `PostFailed`, friendly if the file is rejected."""
        self._most_bytes = self._most_bytes or await self._api.most_bytes()
        size, room, name = await size_of(file, self._most_bytes), room_of(thread), safe_name(name)
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        kind = media_type.partition("/")[0]
        content = {
            "msgtype": f"m.{kind}" if kind in ("image", "audio", "video") else "m.file",
            "body": name,
            "filename": name,
            "info": {"mimetype": media_type, "size": size},
            "m.mentions": {},
            **await self._api.upload(room, file, name, media_type),
        }
        if related := render.in_thread(root_of(thread), ""):
            content["m.relates_to"] = related
        await self._api.send(room, "m.room.message", content, transaction(key, "file"))

    async def try_out(self, thread: ThreadId, message_id: str) -> None:
        """Post a few dots where the answer to the message goes, and remove them. Raises `PostFailed`."""
        room, related = room_of(thread), render.in_thread(root_of(thread), "")
        content = render.content(DOTS, Mark(message_id, final=False), related, notice=True)
        dots = await self._api.send(
            room, "m.room.message", content, transaction(message_id, "open", next(self._edits), id(self))
        )
        await self._api.redact(room, dots)

    async def tell(self, person: str, text: str, key: str) -> None:
        """Tell a person something in a direct room. Raises `PostFailed`."""
        room = await self._api.direct_room(person)
        await self._api.send(
            room, "m.room.message", render.content(text, Mark(key)), transaction(key, "closed")
        )

    async def close_question(self, question: PostedQuestion, decision: str) -> None:
        if not decision:
            await self._api.redact(question.room, question.id)
            return
        text = f"{question.text}\n\n*{render.plain(decision)}*"
        new = render.content(text, Mark(question.key))
        txn = transaction(question.key, "closed")
        await self._api.send(question.room, "m.room.message", render.edit(question.id, new), txn)

    async def react(self, room: str, event: str, sign: str) -> None:
        """Add a reaction. What cannot be added costs nothing else: the choice stands in the text as well."""
        content = {"m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": sign}}
        try:
            await self._api.send(room, "m.reaction", content, transaction(event, sign))
        except PostFailed as error:
            log.info("reaction.failed: %s", error)

    async def _look(self, thread: ThreadId, key: str) -> list[Event]:
        """Return the messages of a post that stand in its thread now."""
        found, start, wanted = list[Event](), "", key_digest(key)
        for _ in range(MOST_PAGES):
            events, start = await self._api.events(room_of(thread), root_of(thread), start=start)
            ours = (event for event in events if event.get("sender") == self._me.id)
            found += [
                one for one in ours if mark_of(one).get("key") == wanted and not relation(one, "m.replace")
            ]
            if found or not start:
                break
        return found

    async def _redact_beyond(self, room: str, parts: _Parts, last: int) -> None:
        for part in [part for part in parts.events if part > last]:
            try:
                await self._api.redact(room, parts.events.pop(part))
            except PostFailed as error:
                log.warning("live.not_deleted: an unfinished message: %s", error)

    def _parts_of(self, key: str) -> _Parts:
        return self._parts.setdefault(key, _Parts())


def signs_of(choices: Sequence[Choice]) -> dict[str, str]:
    """Return the command that each reaction stands for; choices beyond nine are typed."""
    numbers, signs = iter(NUMBERS), dict[str, str]()
    for choice in choices:
        sign = SIGNS.get(choice.command.partition(" ")[0], "")
        if not sign or sign in signs:
            sign = next(numbers, "")
        if sign:
            signs[sign] = choice.command
    return signs


def choices_of(event: Event) -> Mapping[str, Any]:
    """Return the commands that the reactions to a message of the bot stand for."""
    choices = mark_of(event).get("choices")
    return choices if isinstance(choices, dict) and not relation(event, "m.replace") else {}


def _with_choices(text: str, choices: Sequence[Choice], signs: Mapping[str, str]) -> str:
    by_command = {command: sign for sign, command in signs.items()}
    lines = [
        f"- {by_command.get(choice.command, '')} {render.plain(choice.label)}: `{choice.command.replace('`', '')}`"
        for choice in choices
    ]
    return "\n\n".join(filter(None, (text, "\n".join(lines))))
