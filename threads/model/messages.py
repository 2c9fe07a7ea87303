"""What comes in and goes out: messages, files, posts and their outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from .ids import Author, ThreadId, message_key


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message; ``size`` is in bytes as the platform says, 0 if it does not.

    ``url`` is where the platform keeps it: only its transport reads from there, and nobody else is shown it.
    """

    id: str
    name: str
    media_type: str = ""
    size: int = 0
    url: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """A file that came with a message, as it lies at ``path`` in the thread's workspace; ``size`` is in bytes.

    One that could not be had has a ``problem``, a sentence for people, and no path. A ``picture`` is one that models
    can be shown. ``media_type`` is what a picture's own bytes say, else what the platform says.
    """

    name: str
    path: str = ""
    media_type: str = ""
    size: int = 0
    problem: str = ""
    picture: bool = False


Via = Literal["direct", "mention", "overheard"]
"""How a message reached the bot: written to it alone, naming it, or said beside it in a thread it may have joined."""

Way = Literal["compact", "new", "without-files"]
"""How a message that was too long is served again: after a summary, in a fresh conversation, or without its files."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One message a person sent to a thread. ``id`` is the platform's own; ``sent_at`` is UTC, ISO 8601.

    ``first`` is what is done to the conversation before it is served; then it takes a turn of its own, and joins no
    other. A ``control`` is nothing but that: no model reads it.
    ``alias`` is a second id under which the same message may come again. A ``stale`` one was missed while the bot was
    down and is too old to be answered now.
    ``reply_address`` is where the platform takes answers for this person alone, for a while; it is in no log.
    """

    id: str
    thread: ThreadId
    author: Author
    text: str
    sent_at: str = ""
    first: Way | Literal[""] = ""
    control: bool = False
    via: Via = "direct"
    files: tuple[Attachment, ...] = ()
    alias: str = ""
    stale: bool = False
    reply_address: str = field(default="", repr=False)

    @property
    def key(self) -> str:
        return message_key(self.thread, self.id)

    @property
    def keys(self) -> tuple[str, ...]:
        """All that the message may be known by, its key first."""
        return (self.key, message_key(self.thread, self.alias)) if self.alias else (self.key,)


@dataclass(frozen=True, slots=True)
class Edited:
    """The person changed a message; it counts only while the message's turn has not started."""

    id: str
    thread: ThreadId
    text: str


@dataclass(frozen=True, slots=True)
class Deleted:
    """The person took a message back; it counts only while the message's turn has not started."""

    id: str
    thread: ThreadId


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A person stopped a thread, or with a blank root a channel: what is older than ``seq`` ends.

    ``id`` is that of the message that said so, ``seq`` its place in the journal.
    """

    id: str
    thread: ThreadId
    seq: int


FollowUp = Edited | Deleted | StopRequest
"""What a person does to messages that were received before."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a person thinks of an answer: ``post_id`` is the platform's id of the post they judged."""

    id: str
    thread: ThreadId
    author: Author
    post_id: str
    verdict: Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Spoken:
    """A line of a thread from before the bot was asked into it; ``ours`` was the bot's own.

    A ``forwarding`` one also holds what somebody else wrote: a message that was forwarded with it.
    """

    author: Author
    text: str
    ours: bool = False
    forwarding: bool = False


Inbound = Incoming | Edited | Deleted | Feedback

Sink = Callable[[Inbound], Awaitable[None]]
"""Takes one event. When it returns, the event is on disk and may be acknowledged to the platform.

Raises `threads.errors.StoreUnavailable` when it could not be made durable: do not acknowledge it then.
"""

OutgoingKind = Literal["reply", "notice", "error", "refusal"]
"""A refusal is for the person it answers alone, where the platform can show it so."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to go on: what a button says, and the command that pressing it stands for."""

    label: str
    command: str


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One post. ``key`` is the same however often it is tried.

    ``reply_to`` is the message it answers, ``to`` that message's author. A platform without buttons writes the
    ``choices`` out; either way a choice comes back as a message. ``correlation_id`` is that of its turn, for the log.
    """

    thread: ThreadId
    key: str
    text: str
    kind: OutgoingKind = "reply"
    reply_to: str = ""
    choices: tuple[Choice, ...] = ()
    to: str = ""
    correlation_id: str = field(default="", compare=False)
    reply_address: str = field(default="", compare=False, repr=False)


Outcome = Literal[
    "answered", "merged", "refused", "failed", "stopped", "withdrawn", "dead_letter", "undelivered"
]
"""How an accepted message can end: exactly one of these, once."""
