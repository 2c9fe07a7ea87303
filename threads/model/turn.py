"""What a run may see and do, and its limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from .conversation import Image, Message
from .events import TurnEvent
from .messages import File, Incoming, Spoken
from .questions import Answer, Question


class Turn(Protocol):
    """What a run may see and do: one incoming message, its thread's conversation, and a listener."""

    @property
    def incoming(self) -> Incoming: ...

    @property
    def known_answer(self) -> str:
        """The answer, where a crash has kept no more than its text: there is nothing to ask. Blank otherwise."""
        ...

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
