"""Matrix's ids in ours, rooms, and what stands in a post of the bot; pure.

Ids of rooms and events may contain a colon, which ours may not: they are percent-encoded there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from threads.model import ThreadId
from transports.base.text import digest

Event: TypeAlias = "Mapping[str, Any]"
"""An event as the homeserver sends it, decrypted if that was possible. Anybody may have written its content."""

MARK = "org.threadfast.post"
"""The field in the content of the bot's posts that says which post it is a part of."""


def encoded(id_: str) -> str:
    """Return an id of a room, an event or a server as it stands in our ids."""
    return quote(id_, safe="!$@")


def decoded(id_: str) -> str:
    return unquote(id_)


@dataclass(frozen=True, slots=True)
class Me:
    """The bot's account. ``name`` is its display name."""

    id: str
    device: str
    name: str

    @property
    def server(self) -> str:
        return self.id.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Room:
    """A room, as ``transport`` serves it. It is ``direct`` if there is only one person beside the bot."""

    id: str
    transport: str
    server: str
    direct: bool = False
    encrypted: bool = False

    def thread(self, root: str = "") -> ThreadId:
        """Return the conversation below an event. A direct room is one itself."""
        channel = encoded(self.id)
        own = channel if self.direct else ""
        return ThreadId(self.transport, encoded(self.server), channel, encoded(root) or own)


def room_of(thread: ThreadId) -> str:
    return decoded(thread.channel)


def root_of(thread: ThreadId) -> str:
    """Return the event that a thread is below, a blank for a direct room and for the room itself."""
    return "" if thread.root == thread.channel else decoded(thread.root)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a message of the bot is: a part of the post with this key, the first one is 1; ``final`` if it stays.

    ``of`` says how many parts there are, so that a whole post is known as one. ``choices`` are commands by the reaction that stands for each.
    """

    key: str
    part: int = 1
    final: bool = True
    of: int = 1
    choices: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        return {
            "key": key_digest(self.key),
            "part": self.part,
            "of": self.of,
            "final": self.final,
            "choices": {**self.choices},
        }


def key_digest(key: str) -> str:
    """Return what stands for a key in the room: it tells nothing about the key."""
    return digest("matrix", key)


def transaction(key: str, *words: object) -> str:
    """Return the id of a request. The homeserver answers a second request with the same id as the first one."""
    return digest("transaction", key, *map(str, words))


def mark_of(event: Event) -> Mapping[str, Any]:
    """Return the newest mark in a message of the bot; empty if it has none."""
    for content in (newest_content(event), content_of(event)):
        if isinstance(mark := content.get(MARK), dict):
            return mark
    return {}


def content_of(event: Event) -> Mapping[str, Any]:
    content = event.get("content")
    return content if isinstance(content, dict) else {}


def newest_content(event: Event) -> Mapping[str, Any]:
    """Return the content of a message after its last edit, as far as the homeserver told."""
    edit = fields(fields(fields(event, "unsigned"), "m.relations"), "m.replace")
    return fields(content_of(edit), "m.new_content") or content_of(event)


def fields(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object in a field, empty if there is none."""
    value = of.get(name)
    return value if isinstance(value, dict) else {}


def relation(event: Event, kind: str) -> str:
    """Return the event that this one has a relation of a *kind* to, or a blank."""
    related = fields(content_of(event), "m.relates_to")
    target = related.get("event_id")
    return target if related.get("rel_type") == kind and isinstance(target, str) else ""
