"""Slack's events as values: events for the sink, and signals for this transport alone; pure.

Every event that is a message also says how far its channel has come (``moved``), whoever wrote it. A mention comes
twice, as ``message`` and ``app_mention``, with the same id and meaning, so either may come first or alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pydantic import JsonValue

from threads.model import Author, Deleted, Edited, Inbound, Incoming, ThreadId
from transports.base.text import digest
from transports.slack.api.json_fields import Shape, identifier, is_direct, part, place_of, stamp, string
from transports.slack.events.message_words import all_words, own_words
from transports.slack.events.parse_message import (
    NOTHING_KNOWN,
    SAID,
    Known,
    Me,
    author_of,
    parse_message,
    root_of,
    sent_at,
    text_and_quoted,
)


@dataclass(frozen=True, slots=True)
class SessionRenamed:
    """A person gave a session a title of their own."""

    thread: ThreadId


@dataclass(frozen=True, slots=True)
class HomeOpened:
    """A person opened the bot's Messages tab: ``channel`` is their DM."""

    channel: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The bot became a member of a channel, at Slack's time ``at`` ("" if unknown)."""

    channel: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class EventsDropped:
    """Slack drops events: the workspace had more than 30,000 in an hour."""


Signal: TypeAlias = SessionRenamed | HomeOpened | Joined | EventsDropped


@dataclass(frozen=True, slots=True)
class Parsed:
    """``moved`` is the channel and the time that a message carries; ``odd`` is a reason to log, without content.

    ``line`` is the thread that the message is in, and its time, unless the bot wrote it or it is only in the channel.
    """

    inbound: tuple[Inbound, ...] = ()
    signals: tuple[Signal, ...] = ()
    moved: tuple[str, str] | None = None
    line: tuple[ThreadId, str] | None = None
    odd: str = ""


@dataclass(frozen=True, slots=True)
class _Event:
    event: Shape
    id: str
    me: Me
    known: Known

    @property
    def channel(self) -> str:
        return identifier(self.event, "channel")

    @property
    def user(self) -> str:
        return identifier(self.event, "user")

    @property
    def root(self) -> str:
        return stamp(self.event, "thread_ts")

    @property
    def direct(self) -> bool:
        return string(self.event, "channel_type") == "im" or is_direct(self.channel)


def parse_event(body: JsonValue, me: Me, known: Known = NOTHING_KNOWN) -> Parsed:
    """Read the payload of one events_api envelope. Never raises: an unreadable one is ``odd``."""
    if not isinstance(body, dict):
        return Parsed(odd="a payload that is not an object")
    if string(body, "type") == "app_rate_limited":
        return Parsed(signals=(EventsDropped(),))
    event = part(body, "event")
    kind = string(event, "type")
    if (read := _READERS.get(kind)) is None:
        return Parsed(odd=f"an event of an unknown type: {kind[:60]!r}")
    return read(_Event(event, identifier(body, "event_id"), me, known))


def message_in(body: Mapping[str, JsonValue]) -> Shape:
    """Return the message that an event is about."""
    event = part(body, "event")
    return part(event, "message") or event


def said_at(event: Shape) -> str:
    """Return what tells the message that is said in an event from all others; "" for an edit or anything else."""
    is_said = string(event, "type") in ("message", "app_mention") and string(event, "subtype") in SAID
    channel, ts = identifier(event, "channel"), stamp(event, "ts")
    return place_of(channel, ts) if is_said and channel and ts else ""


def _message(e: _Event) -> Parsed:
    match string(e.event, "subtype"):
        case "message_changed":
            return _changed(e)
        case "message_deleted":
            return _deleted(e)
        case _:
            return _post(e)


def _post(e: _Event) -> Parsed:
    ts, named = stamp(e.event, "ts"), string(e.event, "type") == "app_mention"
    if not (e.channel and ts):
        return Parsed(odd="a message without a channel or a time")
    incoming = parse_message(e.event, e.channel, e.me, e.known, direct=e.direct, named=named)
    is_line = incoming or (e.root and not e.me.is_author(e.event))
    line = (e.me.thread(e.channel, e.root or ts), ts) if is_line else None
    return Parsed((incoming,) if incoming else (), moved=(e.channel, ts), line=line)


def _changed(e: _Event) -> Parsed:
    """Read an edit; one that adds the bot's name is also a new message to it."""
    message, before = part(e.event, "message"), part(e.event, "previous_message")
    ts = stamp(message, "ts")
    if not (e.channel and ts):
        return Parsed(odd="an edit without a channel or a message")
    thread = e.me.thread(e.channel, root_of(message))
    if string(message, "subtype") == "tombstone":  # a root that others replied to: its place stays
        return Parsed(() if e.me.is_author(before) else (Deleted(ts, thread),))
    if author_of(message, e.me) is None or not _reworded(message, before):
        return Parsed()
    edited = Edited(ts, thread, *text_and_quoted(message, own_words(message), e.me, e.known))
    incoming = parse_message(message, e.channel, e.me, e.known, direct=e.direct)
    added = incoming is not None and incoming.via == "mention" and not e.me.is_named_in(own_words(before))
    return Parsed((edited, incoming) if incoming is not None and added and before else (edited,))


def _reworded(message: Shape, before: Shape) -> bool:
    """Return whether the words changed, its own or those of a preview that Slack adds."""
    return all_words(message) != all_words(before) if before else bool(part(message, "edited"))


def _deleted(e: _Event) -> Parsed:
    ts, before = stamp(e.event, "deleted_ts"), part(e.event, "previous_message")
    if not (e.channel and ts):
        return Parsed(odd="a deletion without a channel or a message")
    if e.me.is_author(before):
        return Parsed()
    return Parsed((Deleted(ts, e.me.thread(e.channel, root_of(before) or ts)),))


def _stopped(e: _Event) -> Parsed:
    """Read a press of Slack's own stop button: the person says "/stop" in that thread."""
    at = stamp(e.event, "event_ts")
    if not (e.channel and e.root and e.user):
        return Parsed(odd="a stop without a thread or a person")
    stop = Incoming(
        id=f"stop-{digest(e.id or at, e.channel, e.root, e.user)}",
        thread=e.me.thread(e.channel, e.root),
        author=Author(e.user),
        text="/stop",
        sent_at=sent_at(at) if at else "",
        via="direct" if e.direct else "mention",
    )
    return Parsed((stop,))


def _titled(e: _Event) -> Parsed:
    if not (e.channel and e.root):
        return Parsed(odd="a new title without a thread")
    return (
        Parsed() if e.user == e.me.user else Parsed(signals=(SessionRenamed(e.me.thread(e.channel, e.root)),))
    )


def _home(e: _Event) -> Parsed:
    if string(e.event, "tab") != "messages":
        return Parsed()
    if not e.channel:
        return Parsed(odd="an opened Messages tab without a channel")
    return Parsed(signals=(HomeOpened(e.channel),))


def _joined(e: _Event) -> Parsed:
    ours = e.user == e.me.user and e.channel
    return Parsed(signals=(Joined(e.channel, stamp(e.event, "event_ts")),)) if ours else Parsed()


_READERS: dict[str, Callable[[_Event], Parsed]] = {
    "message": _message,
    "app_mention": _post,
    "agent_session_stopped": _stopped,
    "agent_session_title_changed": _titled,
    "app_home_opened": _home,
    "member_joined_channel": _joined,
}
