"""Matrix's ids in ours, rooms, and what stands in an event; pure.

Ids of rooms and events may contain a colon, which ours may not: they are percent-encoded there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from threads.model import ThreadId
from transports.base.text import digest

Event: TypeAlias = "Mapping[str, Any]"
"""An event as the homeserver sends it, decrypted if that was possible. Anybody may have written its content."""

MARK = "org.threadfast.post"
"""The field in the content of the bot's messages that says of which post each is a part."""


def encoded(id_: str) -> str:
    """Return an id of a room, an event or a server as it stands in our ids."""
    return quote(id_, safe="!$@")


decoded = unquote


@dataclass(frozen=True, slots=True)
class Me:
    """The bot's account. ``name`` is its display name."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Room:
    """A room of ``server``, as ``transport`` serves it. It is ``direct`` if it is the bot's and one person's."""

    id: str
    transport: str
    server: str
    direct: bool
    encrypted: bool

    def thread(self, root: str = "") -> ThreadId:
        """Return the conversation below an event. A direct room is one itself."""
        channel = encoded(self.id)
        below = encoded(root) or (channel if self.direct else "")
        return ThreadId(self.transport, encoded(self.server), channel, below)


def room_of(thread: ThreadId) -> str:
    return decoded(thread.channel)


def root_of(thread: ThreadId) -> str:
    """Return the event that a thread is below, a blank for a direct room and for the room itself."""
    return "" if thread.root == thread.channel else decoded(thread.root)


def mark(
    key: str, part: int = 1, *, of: int = 1, final: bool = True, choices: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what says that a message is this part *of* so many of a post. It is ``final`` if it stays.

    *choices* are commands by the reaction that stands for each. Nobody can tell the key from it.
    """
    about = {"key": digest("matrix", key), "part": part, "of": of}
    return {**about, "final": final, "choices": dict(choices or {})}


def transaction(*words: object) -> str:
    """Return the id of a request. The homeserver answers a second request with the same id as the first one."""
    return digest("transaction", *map(str, words))


def mark_of(event: Event) -> Mapping[str, Any]:
    """Return the newest mark in a message, empty if it has none."""
    return fields(newest_content(event), MARK)


def content_of(event: Event) -> Mapping[str, Any]:
    return fields(event, "content")


def newest_content(event: Event) -> Mapping[str, Any]:
    """Return the content of a message after its last edit, as far as the homeserver told."""
    return fields(content_of(edit_of(event)), "m.new_content") or content_of(event)


def edit_of(event: Event) -> Mapping[str, Any]:
    return fields(fields(fields(event, "unsigned"), "m.relations"), "m.replace")


def fields(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object in a field, empty if there is none."""
    return value if isinstance(value := of.get(name), dict) else {}


def text(of: Mapping[str, Any], name: str) -> str:
    """Return the text in a field, a blank if there is none."""
    return value if isinstance(value := of.get(name), str) else ""


def several(of: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Return the list in a field, empty if there is none."""
    return value if isinstance(value := of.get(name), list) else ()


def relation(event: Event, kind: str) -> str:
    """Return the event that this one has a relation of a *kind* to, or a blank."""
    related = fields(content_of(event), "m.relates_to")
    return text(related, "event_id") if related.get("rel_type") == kind else ""
