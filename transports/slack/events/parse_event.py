"""What Slack's Events API tells, as values: what goes to the sink, and what only this transport needs; pure.

Every event that is a message also says how far its channel has come (``moved``), whoever wrote it. The twins of a
mention, ``message`` and ``app_mention``, have the same id and the same meaning, so either may come first or alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import JsonValue

from threads.model import Author, Deleted, Edited, Inbound, Incoming, ThreadId
from transports.slack.api.json_fields import Shape, count, digest, identifier, is_direct, part, stamp, string
from transports.slack.events.parse_message import (
    Me,
    author_of,
    own_words,
    parse_message,
    root_of,
    sent_at,
    text_of,
)

LEAVING = frozenset(
    {
        *("channel_left", "group_left"),
        *("channel_archive", "group_archive", "channel_deleted", "group_deleted"),
    }
)
"""The events after which nothing more is to be read in a channel; it may begin anew later."""


@dataclass(frozen=True, slots=True)
class TitleChanged:
    """The user *by* gave a session a title of their own."""

    thread: ThreadId
    title: str
    by: str


@dataclass(frozen=True, slots=True)
class HomeOpened:
    """A person opened the bot's Messages tab: ``channel`` is their DM."""

    channel: str
    user: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The bot became a member of a channel, at Slack's time ``at`` ("" if unknown)."""

    channel: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    channel: str


@dataclass(frozen=True, slots=True)
class Overload:
    """Slack drops events (more than 30,000 in an hour): ``minute`` is when that began, in seconds since 1970."""

    minute: int


Signal: TypeAlias = TitleChanged | HomeOpened | Joined | Left | Overload


@dataclass(frozen=True, slots=True)
class Parsed:
    """``moved`` is the channel and the time that a message carries; ``odd`` is a reason to log, without content."""

    inbound: tuple[Inbound, ...] = ()
    signals: tuple[Signal, ...] = ()
    moved: tuple[str, str] | None = None
    odd: str = ""


@dataclass(frozen=True, slots=True)
class _Event:
    event: Shape
    id: str
    me: Me
    bots: frozenset[str]

    @property
    def channel(self) -> str:
        return identifier(self.event, "channel")

    @property
    def direct(self) -> bool:
        return string(self.event, "channel_type") == "im" or is_direct(self.channel)


def parse_event(body: JsonValue, me: Me, *, bots: frozenset[str] = frozenset()) -> Parsed:
    """Read the payload of one events_api envelope. Never raises: what it cannot read is ``odd``."""
    if not isinstance(body, dict):
        return Parsed(odd="a payload that is no object")
    if string(body, "type") == "app_rate_limited":
        return Parsed(signals=(Overload(count(body, "minute_rate_limited")),))
    event = part(body, "event")
    kind = string(event, "type")
    if kind in LEAVING:
        return _left(_Event(event, "", me, bots))
    read = _READERS.get(kind)
    if read is None:
        return Parsed(odd=f"an event of an unknown type: {kind[:60]!r}")
    return read(_Event(event, identifier(body, "event_id"), me, bots))


def _message(e: _Event) -> Parsed:
    match string(e.event, "subtype"):
        case "message_changed":
            return _changed(e)
        case "message_deleted":
            return _deleted(e)
        case _:
            return _said(e)


def _said(e: _Event) -> Parsed:
    ts, named = stamp(e.event, "ts"), string(e.event, "type") == "app_mention"
    if not (e.channel and ts):
        return Parsed(odd="a message without a channel or a time")
    incoming = parse_message(e.event, e.channel, e.me, direct=e.direct, bots=e.bots, named=named)
    return Parsed((incoming,) if incoming else (), moved=(e.channel, ts))


def _changed(e: _Event) -> Parsed:
    """Read an edit; one that adds the bot's name is what the message should have been from the start."""
    message, before = part(e.event, "message"), part(e.event, "previous_message")
    ts = stamp(message, "ts")
    if not (e.channel and ts):
        return Parsed(odd="an edit without a channel or a message")
    thread = e.me.thread(e.channel, root_of(message))
    if string(message, "subtype") == "tombstone":  # a root that others replied to: its place stays
        return Parsed(() if e.me.is_author(before) else (Deleted(ts, thread),))
    if author_of(message, e.me, e.bots) is None or not _reworded(message, before):
        return Parsed()
    edited = Edited(ts, thread, text_of(message, e.me))
    incoming = parse_message(message, e.channel, e.me, direct=e.direct, bots=e.bots)
    added = incoming is not None and incoming.via == "mention" and not e.me.is_named_in(own_words(before))
    return Parsed((edited, incoming) if incoming is not None and added and before else (edited,))


def _reworded(message: Shape, before: Shape) -> bool:
    """Return whether the person changed the words: Slack sends the same event when it adds a preview."""
    if not before:
        return bool(part(message, "edited"))
    return own_words(message) != own_words(before)


def _deleted(e: _Event) -> Parsed:
    ts, before = stamp(e.event, "deleted_ts"), part(e.event, "previous_message")
    if not (e.channel and ts):
        return Parsed(odd="a deletion without a channel or a message")
    if e.me.is_author(before):
        return Parsed()
    return Parsed((Deleted(ts, e.me.thread(e.channel, root_of(before) or ts)),))


def _stopped(e: _Event) -> Parsed:
    """Read a press of Slack's own stop button: the person says "/stop" in that thread."""
    root, user, at = (
        stamp(e.event, "thread_ts"),
        identifier(e.event, "user"),
        stamp(e.event, "event_ts"),
    )
    if not (e.channel and root and user):
        return Parsed(odd="a stop without a thread or a person")
    return Parsed(
        (
            Incoming(
                id=f"stop-{digest(e.id or at, e.channel, root, user)}",
                thread=e.me.thread(e.channel, root),
                author=Author(user),
                text="/stop",
                sent_at=sent_at(at) if at else "",
                via="direct" if e.direct else "mention",
            ),
        )
    )


def _titled(e: _Event) -> Parsed:
    root, title, user = (
        stamp(e.event, "thread_ts"),
        string(e.event, "title"),
        identifier(e.event, "user"),
    )
    if not (e.channel and root):
        return Parsed(odd="a new title without a thread")
    if user == e.me.user:
        return Parsed()
    return Parsed(signals=(TitleChanged(e.me.thread(e.channel, root), title, user),))


def _home(e: _Event) -> Parsed:
    user = identifier(e.event, "user")
    if string(e.event, "tab") != "messages":
        return Parsed()
    if not (e.channel and user):
        return Parsed(odd="an opened Messages tab without a channel or a person")
    return Parsed(signals=(HomeOpened(e.channel, user),))


def _joined(e: _Event) -> Parsed:
    ours = identifier(e.event, "user") == e.me.user and e.channel
    return Parsed(signals=(Joined(e.channel, stamp(e.event, "event_ts")),)) if ours else Parsed()


def _member_left(e: _Event) -> Parsed:
    return _left(e) if identifier(e.event, "user") == e.me.user else Parsed()


def _left(e: _Event) -> Parsed:
    return Parsed(signals=(Left(e.channel),)) if e.channel else Parsed(odd="a channel left without its id")


_READERS: dict[str, Callable[[_Event], Parsed]] = {
    "message": _message,
    "app_mention": _said,
    "agent_session_stopped": _stopped,
    "agent_session_title_changed": _titled,
    "app_home_opened": _home,
    "member_joined_channel": _joined,
    "member_left_channel": _member_left,
}
