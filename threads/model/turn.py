"""What the agent may see and do in a turn, and the limits."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from .conversation import Image, Message
from .events import TurnEvent
from .messages import Earlier, File, Incoming, SentFile
from .questions import Answer, Question


class Turn(Protocol):
    """What the agent may see and do: one incoming message, its thread's conversation, and a listener."""

    @property
    def incoming(self) -> Incoming: ...

    @property
    def known_answer(self) -> str:
        """The answer, if it is known from before a crash and only the conversation lacks it. Blank otherwise."""

    @property
    def attempt(self) -> int:
        """The number of this attempt to answer the message, from 1."""

    @property
    def correlation_id(self) -> str:
        """The id that joins the thread's text, the log and the audit. Each attempt has its own."""

    @property
    def timed_out(self) -> bool:
        """Whether the turn ran out of time."""

    @property
    def messages(self) -> list[Message]:
        """The conversation so far, oldest first. Change it only through `add` and `replace_messages`."""

    def add(self, *messages: Message) -> None:
        """Append to the conversation. The next checkpoint makes it durable."""

    def replace_messages(self, messages: list[Message]) -> None:
        """Replace the conversation with a repaired one."""

    async def compact(self, messages: list[Message]) -> None:
        """Archive the conversation and replace it with a shorter one. Raises `StoreUnavailable`."""

    def note(self, text: str) -> None:
        """Show a note above the answer, once."""

    async def ask(self, question: Question) -> Answer | None:
        """Ask the people of the thread, and wait without a slot and with the turn's clock stopped.

        Returns None if nobody can be asked here.
        """

    async def checkpoint(self) -> None:
        """Make the conversation durable. If the disk refuses, the turn waits, notes it, and goes on."""

    async def attachments(self, incoming: Incoming) -> Sequence[File]:
        """Return the files of a message, complete and on disk. A file with a problem says so, and a note does too."""

    async def bytes_of(self, file: File) -> bytes:
        """Return the bytes of an attached file. Raises OSError."""

    async def with_text(self, file: File, text: str) -> File:
        """Return an attached file with its text, which is stored beside it. Raises OSError."""

    async def earlier(self, incoming: Incoming) -> Earlier:
        """Return the lines of the thread before a message that are not in the conversation, oldest first.

        For the first message of a conversation these are all lines. A note tells of a failure.
        """

    async def sent_files(self) -> Sequence[SentFile]:
        """Return the files that people sent to the thread, newest first. Raises `threads.errors.PostFailed`."""

    async def fetch(self, sent: Sequence[SentFile]) -> Sequence[File]:
        """Return these files, complete and on disk. A file with a problem says so."""

    async def picture(self, image: Image) -> Image:
        """Return the picture with its bytes, or without them if the file is gone or has changed."""

    async def attach(self, call_id: str, file: Path, name: str) -> None:
        """Post a file to the thread for a tool call. Raises `threads.errors.PostFailed`."""

    async def steer(self, render: Callable[[Incoming], Awaitable[Message]]) -> None:
        """Let messages that arrived meanwhile join this turn. Does nothing if the settings say to queue them."""

    async def tell(self, event: TurnEvent) -> None:
        """Show the person an event. `Waiting` gives the turn's slot back until `Resumed`."""


Run = Callable[[Turn], Awaitable[str]]
"""Answers a turn. It returns the text to post, or raises; an exception ends only this turn."""


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Limits, as counts, seconds and bytes. Infinity means no limit."""

    mailbox: int = 20
    running_turns: float = 256
    running_turns_per_user: float = 4
    turn_timeout_s: float = 900
    idle_timeout_s: float = 600
    attempts: int = 3
    attachment_bytes: int = 20_000_000
    busy: Literal["steer", "queue"] = "steer"

    def turn_s(self, incoming: Incoming) -> float:
        """Return the seconds that a turn may take. A command in the model's place has its own limits."""
        return math.inf if incoming.first == "command" else self.turn_timeout_s
