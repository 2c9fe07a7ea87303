"""The platforms as people see them: somebody asks, and the time of the first text and of the answer is taken.

Both are taken when the fake has carried the call out that showed them.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from benchmarks.wire.questions import Kind, closing, opening, question
from tests.fakes.slack import Call as SlackCall
from tests.fakes.slack import FakeSlack

WITHIN_S = 60.0
PEOPLE = 50
Where = Literal["channel", "direct"]


@dataclass(slots=True)
class Asked:
    """A question on its way; ``first_s`` and ``answer_s`` are the seconds from the event on."""

    number: int
    at: float = field(default_factory=time.monotonic)
    first_s: float = 0.0
    answer_s: float = 0.0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def saw(self, text: str) -> None:
        """Take the time if *text*, which is visible now, is the first of the answer, or has its end."""
        passed = time.monotonic() - self.at
        if not self.first_s and opening(self.number) in text:
            self.first_s = passed
        if not self.done.is_set() and closing(self.number) in text[-200:]:
            self.first_s = self.first_s or passed
            self.answer_s = passed
            self.done.set()


@dataclass(slots=True)
class Conversation:
    """One person in one place; ``thread`` is known after the first question."""

    person: int
    where: Where
    thread: str = ""


class Wire(Protocol):
    """A fake platform with one bot on it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def is_connected(self) -> bool:
        """Whether the bot is there."""
        ...

    async def ask(self, conversation: Conversation, kind: Kind, number: int) -> Asked:
        """Ask, and return once the answer is there. Raises TimeoutError."""
        ...

    def sent(self) -> tuple[int, int]:
        """Return how many calls the bot has made, and the bytes of what it gave them."""
        ...


class SlackWire(FakeSlack):
    """A loopback Slack, in which each conversation in a channel is a thread that begins with a mention."""

    def __init__(self) -> None:
        self._unanswered: list[SlackCall] = []
        self._read = self._counted = self._bytes = 0
        self._waiting: dict[str, Asked] = {}
        super().__init__()
        self.sockets.remember = False
        for number in range(PEOPLE):
            self.user(f"UP{number}")
            self.channel(f"DP{number}", kind="im", user=f"UP{number}")
            self.channel(f"CP{number}")

    @property
    def is_connected(self) -> bool:
        return bool(self.sockets.links)

    async def ask(self, conversation: Conversation, kind: Kind, number: int) -> Asked:
        direct = conversation.where == "direct"
        channel = f"{'D' if direct else 'C'}P{conversation.person}"
        text = question(kind, number) if direct else f"<@UBOT> {question(kind, number)}"
        asked = Asked(number)
        said = self.say(f"UP{conversation.person}", channel, text, thread_ts=conversation.thread or None)
        conversation.thread = conversation.thread or said.ts
        self._waiting[conversation.thread] = asked
        async with asyncio.timeout(WITHIN_S):
            await asked.done.wait()
        return asked

    def sent(self) -> tuple[int, int]:
        self._bytes += sum(len(json.dumps(call.args)) for call in self.calls[self._counted :])
        self._counted = len(self.calls)
        return self._counted, self._bytes

    def changed(self) -> None:
        super().changed()
        self._unanswered += self.calls[self._read :]
        self._read = len(self.calls)
        left = []
        for call in self._unanswered:
            if call.answer is None:
                left.append(call)
            elif call.answer["ok"]:
                self._see(call.answer)
        self._unanswered = left

    def _see(self, answer: dict[str, Any]) -> None:
        """Look at the message that a call has changed, if it is one in a thread where somebody waits."""
        channel = (
            self.channels.get(answer.get("channel") or "") if isinstance(answer.get("channel"), str) else None
        )
        message = channel.messages.get(answer.get("ts", "")) if channel else None
        if message and (asked := self._waiting.get(message.root)):
            asked.saw(message.text)
