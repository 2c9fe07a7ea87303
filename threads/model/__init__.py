"""The words everything else is written in: values only, no I/O, no policy, no platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, JsonValue


@dataclass(frozen=True, slots=True)
class ThreadId:
    """Where a conversation lives, for example ``slack:T1:C123:1700000000.1``.

    Only ``root`` may hold a colon, so that the text form can be parsed back.
    """

    transport: str
    workspace: str
    channel: str
    root: str

    def __str__(self) -> str:
        return f"{self.transport}:{self.workspace}:{self.channel}:{self.root}"

    def within(self, place: ThreadId) -> bool:
        """Return whether this is *place*, or, if that has a blank root, a thread of that channel."""
        return self == (place if place.root else replace(place, root=self.root))

    @classmethod
    def parse(cls, text: str) -> ThreadId:
        """Read the text form back; raises ValueError when it has fewer than four parts."""
        transport, workspace, channel, root = text.split(":", 3)
        return cls(transport, workspace, channel, root)


def message_key(thread: ThreadId, message_id: str) -> str:
    """Return what makes a message itself, whatever thread view or event it arrived through."""
    return f"{thread.transport}:{thread.workspace}:{thread.channel}:{message_id}"


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a message. ``id`` is the platform's and is what rights hang on; ``name`` is for reading.

    ``roles`` are the ids of what they are there, as far as rights hang on that too.
    """

    id: str
    name: str = ""
    roles: tuple[str, ...] = ()


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


Outcome = Literal[
    "answered", "merged", "refused", "failed", "stopped", "withdrawn", "dead_letter", "undelivered"
]
"""How an accepted message can end: exactly one of these, once."""


@dataclass(frozen=True, slots=True)
class Text:
    """``outside``: it was not typed by anybody who may give orders here."""

    text: str
    type: Literal["text"] = "text"
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Thinking:
    """A provider's reasoning. ``raw`` goes back byte-identical, and only to the model that wrote it."""

    text: str
    model: str
    raw: dict[str, JsonValue] = field(default_factory=dict)
    type: Literal["thinking"] = "thinking"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish. ``malformed`` is the raw text of arguments that were no JSON object: never run those."""

    id: str
    name: str
    arguments: dict[str, JsonValue]
    malformed: str = ""
    type: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave back. ``content`` is the JSON result as text, exactly as the model reads it.

    ``outside``: it holds text from the web, a file that came, or another program.
    """

    call_id: str
    content: str
    is_error: bool = False
    type: Literal["tool_result"] = "tool_result"
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """A picture. ``file`` is its path in the thread's workspace; ``data`` is read for a request and never stored."""

    file: str
    media_type: str
    data: Annotated[bytes, Field(exclude=True)] = b""
    type: Literal["image"] = "image"


Block = Annotated[Text | Thinking | ToolCall | ToolResult | Image, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation as the model sees it.

    ``source`` is the id of the incoming message that a user entry came from, or that an assistant entry is the
    final answer to, so that a turn served again after a crash recognises both; ``model`` is the
    ``provider/model`` that wrote an assistant entry, and ``tokens`` how long the conversation was with it, system
    prompt and tools included, as that provider counted; 0 is unknown. ``at`` is when it was added (UTC, ISO 8601):
    for `why`, no part of what a model reads.
    """

    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...]
    source: str = ""
    model: str = ""
    tokens: int = 0
    at: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    @property
    def calls(self) -> list[ToolCall]:
        return [block for block in self.blocks if isinstance(block, ToolCall)]

    @property
    def results(self) -> list[ToolResult]:
        return [block for block in self.blocks if isinstance(block, ToolResult)]


@dataclass(frozen=True, slots=True)
class Taken:
    """A message is on disk and waits for its turn: show a sign. ``text`` and ``author`` are the message's.

    ``again``: an earlier process had taken it, and may have left its signs.
    """

    text: str = ""
    author: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A message's turn began: show a sign. ``text`` and ``author`` are the message's."""

    text: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of what the model says to itself: a sign of progress, no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class TextReset:
    """Forget the text shown since the last step began: the call failed and will be made again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The turn waits ``seconds`` for something outside, and holds no slot meanwhile."""

    reason: str
    seconds: float
    attempt: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """The wait is over."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    name: str
    summary: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    name: str
    ok: bool
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """The question that was posted under ``key`` is open no more: decided ``by`` a person, or by nobody in time."""

    key: str
    approved: bool
    by: str = ""


@dataclass(frozen=True, slots=True)
class TurnSettled:
    """The message at hand has its outcome; nothing more of this turn follows.

    ``again``: an earlier process had taken it, and may even have shown this; ``interrupted``: it had begun to answer,
    and what it showed may still stand there unfinished.
    """

    outcome: Outcome
    again: bool = False
    interrupted: bool = False


TurnEvent = (
    Taken
    | TurnStarted
    | TextDelta
    | ThinkingDelta
    | TextReset
    | Waiting
    | Resumed
    | ToolStarted
    | ToolFinished
    | QuestionClosed
    | TurnSettled
)
OnEvent = Callable[[TurnEvent], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to a question. ``words`` are what it grants, such as an amount."""

    label: str
    approve: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person decided. ``words`` are what they added, or the option's own.

    A no ``by`` nobody: the question was open for as long as it may be.
    """

    approved: bool
    by: str
    words: str = ""

    @property
    def declines_all(self) -> bool:
        return not self.approved and self.words.strip().lower() == "all"


async def nothing_to_keep(_: Answer) -> None:
    """Do nothing: the answer is for this process alone."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something only a person may decide. ``may_answer`` judges an author's id; ``about`` is for a status line.

    ``brief`` tells it from other questions that are open beside it. ``fault`` tells what is wrong with the words of
    a yes, or gives ``""``: then the question stays open. ``same`` is what makes it the same question after a restart;
    without it, its text and its place among the turn's questions do. It stays open for ``within_s`` seconds. ``keep``
    makes the answer durable, before anybody is told of it.
    """

    text: str
    options: tuple[Option, ...]
    may_answer: Callable[[str], bool]
    about: str = "your decision"
    brief: str = ""
    fault: Callable[[str], str] = lambda _: ""
    same: str = ""
    within_s: float = 3600
    keep: Callable[[Answer], Awaitable[None]] = nothing_to_keep


class Turn(Protocol):
    """What a run may see and do: one incoming message, its thread's conversation, and a listener."""

    @property
    def incoming(self) -> Incoming: ...

    @property
    def attempt(self) -> int:
        """The number of this try to answer the message, from 1."""
        ...

    @property
    def correlation_id(self) -> str:
        """What joins the thread's text, the log and the audit; another one at each attempt."""
        ...

    @property
    def timed_out(self) -> bool:
        """Whether the turn was cut because its time was over."""
        ...

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, oldest first; change it only through ``add`` and ``replace_messages``."""
        ...

    def add(self, *messages: Message) -> None:
        """Append to the conversation; the next checkpoint makes it durable."""
        ...

    def replace_messages(self, messages: list[Message]) -> None:
        """Put a repaired conversation in place of the current one."""
        ...

    async def compact(self, messages: list[Message]) -> None:
        """Put a shorter conversation in place; the whole one is kept aside first. Raises `StoreUnavailable`."""
        ...

    def note(self, text: str) -> None:
        """Have something said once, above the answer."""
        ...

    async def ask(self, question: Question) -> Answer | None:
        """Ask the people of the thread. Waits without a slot and with the turn's clock stopped.

        None when nobody can be asked here.
        """
        ...

    async def checkpoint(self) -> None:
        """Make the conversation durable. A disk that refuses costs a wait and a note, never the turn."""
        ...

    async def attachments(self, incoming: Incoming) -> Sequence[File]:
        """Return the files of a message, on disk and whole; what is wrong with one is noted, and said in it."""
        ...

    async def earlier(self) -> Sequence[Spoken]:
        """Return what was said in the thread before the bot was asked into it, oldest first; a failure is noted."""
        ...

    async def picture(self, image: Image) -> Image:
        """Return the picture with its bytes; without them when it is not there any more as it was."""
        ...

    async def attach(self, call_id: str, file: Path, name: str) -> None:
        """Post a file to the thread, for a tool's call. Raises `threads.errors.PostFailed`."""
        ...

    async def steer(self, render: Callable[[Incoming], Awaitable[Message]]) -> None:
        """Let messages that arrived meanwhile join this turn, rendered; nothing in a thread that queues."""
        ...

    async def tell(self, event: TurnEvent) -> None:
        """Let the person see what goes on; `Waiting` gives the turn's slot back until `Resumed`."""
        ...


Run = Callable[[Turn], Awaitable[str]]
"""Answers a turn: returns the text to post, or raises; whatever it raises ends only this turn."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be held and how long it may take; counts, seconds and bytes. Infinity is no limit."""

    mailbox: int = 20
    running_turns: float = 256
    running_turns_per_user: float = 4
    turn_timeout_s: float = 900
    idle_timeout_s: float = 600
    attempts: int = 3
    attachment_bytes: int = 20_000_000
    busy: Literal["steer", "queue"] = "steer"
