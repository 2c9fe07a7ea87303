"""Incoming messages, files, posts and outcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from .conversation import Image
from .ids import Author, ThreadId, message_key

WallClock = Callable[[], datetime]
"""Returns the time of day, in UTC: what is stored has it, and people read it."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file attached to a message. ``size`` is in bytes as the platform says, 0 if unknown.

    ``url`` is for the transport only. Nobody else sees it. ``voice``: the message's author recorded it in the chat.
    """

    id: str
    name: str
    media_type: str = ""
    size: int = 0
    url: str = ""
    voice: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """An attached file, stored at ``path`` in the thread's workspace. ``size`` is in bytes.

    If it could not be stored, ``problem`` says why in a sentence for people, and ``path`` is blank. ``media_type``
    comes from a picture's own bytes, else from the platform. ``audio`` is "voice" for what the message's author said
    in the chat, and "file" for any other recording.

    What a model gets of it is its ``text``, which is whole in the file ``text_path`` of the workspace, or the picture
    ``shown``; ``missing`` is a sentence on what that lacks. What is ``said`` in it stands in the message in its
    place, as its author's own words. ``told`` is a sentence for people on why nothing of it can be read.
    """

    name: str
    path: str = ""
    media_type: str = ""
    size: int = 0
    problem: str = ""
    audio: Literal["", "voice", "file"] = ""
    said: str = ""
    told: str = ""
    text: str = ""
    text_path: str = ""
    missing: str = ""
    shown: Image | None = None


Via = Literal["direct", "mention", "overheard"]
"""How a message reached the bot: addressed to it alone, with a mention, or in a thread that it may have joined."""

Way = Literal["compact", "new", "without-files"]
"""How to serve a message that was too long: after a summary, in a new conversation, or without its files."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that a person sent to a thread. ``id`` is the platform's. ``sent_at`` is UTC, ISO 8601.

    ``first`` changes the conversation before the message is served; a "command" is answered in the model's place.
    Such a message gets a turn of its own. If it is a ``control``, that is all it does, and no model reads it.
    ``alias`` is a second id that the platform may deliver the same message with. A ``stale`` message was missed while
    the bot was down, and is too old to answer.
    ``without_files``: its person leaves out all files, also those of the lines before it.
    ``reply_address`` is where the platform accepts answers to this person alone, for a limited time. It is never
    logged.
    ``quoted`` is what others say in the message, such as a forward: text from outside.
    ``replaces`` is the id of an earlier message: the conversation goes back to it, and this one takes its place.
    """

    id: str
    thread: ThreadId
    author: Author
    text: str
    sent_at: str = ""
    first: Way | Literal["command", ""] = ""
    control: bool = False
    via: Via = "direct"
    files: tuple[Attachment, ...] = ()
    alias: str = ""
    stale: bool = False
    without_files: bool = False
    reply_address: str = field(default="", repr=False)
    quoted: str = ""
    replaces: str = ""

    @property
    def key(self) -> str:
        return message_key(self.thread, self.id)

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that identify the message, its own first."""
        return (self.key, message_key(self.thread, self.alias)) if self.alias else (self.key,)


def with_quoted(text: str, quoted: str) -> str:
    """Return what a person says and, below it, what others say in the message: for people, not for a model."""
    return "\n\n".join(filter(None, (text, quoted)))


@dataclass(frozen=True, slots=True)
class Edited:
    """A person edited a message. It counts only if the message's turn has not started."""

    id: str
    thread: ThreadId
    text: str
    quoted: str = ""


@dataclass(frozen=True, slots=True)
class Deleted:
    """A person deleted a message. It counts until the message's answer is on its way."""

    id: str
    thread: ThreadId


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A person stopped a thread, or a whole channel if the root is blank.

    ``id`` is the id of the stopping message and ``seq`` its place in the journal. Messages before ``seq`` end.
    """

    id: str
    thread: ThreadId
    seq: int


FollowUp = Edited | Deleted | StopRequest
"""What a person does to earlier messages."""


Verdict = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Feedback:
    """A person's verdict on an answer. ``post_id`` is the platform's id of that post. The last verdict counts."""

    id: str
    thread: ThreadId
    author: Author
    post_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message in a thread that did not come to the bot. ``ours``: the bot wrote it.

    ``forwarding``: it contains a forwarded message that somebody else wrote. ``id`` is the platform's, ``sent_at`` is
    UTC, ISO 8601, by its clock.
    """

    author: Author
    text: str
    ours: bool = False
    forwarding: bool = False
    id: str = ""
    files: tuple[Attachment, ...] = ()
    sent_at: str = ""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Lines of a thread, oldest first. ``left_out`` counts those that are not among them, as far as is known.

    ``title`` is the thread's own, blank if it has none. If the lines go back to the beginning, the first one is the
    message that the thread is about.
    """

    lines: tuple[Spoken, ...] = ()
    left_out: int = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that somebody sent to a thread. ``path`` is its place in the thread's workspace, once it is stored."""

    attachment: Attachment
    path: str
    author: Author


Inbound = Incoming | Edited | Deleted | Feedback

Sink = Callable[[Inbound], Awaitable["Outcome | None"]]
"""Receives one event. When it returns, the event is durable and may be acknowledged to the platform.

Returns the outcome of a message that was received before and is over.
Raises `threads.errors.StoreUnavailable` if the event is not durable. Do not acknowledge it then.
"""

OutgoingKind = Literal["reply", "notice", "error", "refusal"]
"""A refusal is shown to its person alone, if the platform can do that."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A button: its label, and the command that a press stands for."""

    label: str
    command: str


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One post. ``key`` stays the same over all tries.

    ``reply_to`` is the message it answers, and ``to`` that message's author. A platform without buttons writes the
    ``choices`` out. Either way a choice comes back as a message. ``correlation_id`` is its turn's, for the log.
    ``expired``: it is too old, and posted only because it may be out already. Known not to be, it is given up.
    ``about`` is the text of the message it answers.
    ``links`` are addresses in the text that the bot itself wrote, not a model: they stay links in every form.
    ``again``: it may be out since an earlier try, so it is looked for first.
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
    expired: bool = False
    about: str = field(default="", compare=False, repr=False)
    links: tuple[str, ...] = ()
    again: bool = field(default=False, compare=False)


Outcome = Literal[
    "answered", "merged", "refused", "failed", "stopped", "withdrawn", "dead_letter", "undelivered"
]
"""How an accepted message ends: with exactly one of these, once."""
