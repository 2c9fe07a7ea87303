"""The platforms as people see them: somebody asks, and the time of the first text and of the answer is taken.

Both are taken when the fake has carried the call out that showed them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from benchmarks.wire.questions import Kind, closing, opening, question
from tests.fakes.discord import BOT, CHANNEL, FakeDiscord
from tests.fakes.slack import FakeSlack

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
            self._end(passed)

    def was_merged(self) -> None:
        """Take the time if this is answered with a later question."""
        if not self.done.is_set():
            self._end(time.monotonic() - self.at)

    def _end(self, passed: float) -> None:
        self.first_s, self.answer_s = self.first_s or passed, passed
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
        """Ask, and return once the answer is there."""
        ...

    def sent(self) -> tuple[int, int]:
        """Return how many calls the bot has made, and the bytes of what it gave them."""
        ...


class Watch:
    """Looks at a fake's calls as they are answered, and tells who waits for what they show.

    *given* returns what a call brings along. *shown* returns the places where an answered call shows a text, in any
    of which somebody may wait, and the text.
    """

    def __init__(
        self, given: Callable[[Any], Any], shown: Callable[[Any], tuple[Sequence[str], str]]
    ) -> None:
        self._given, self._shown = given, shown
        self._waiting = defaultdict[str, list[Asked]](list)
        self._open: list[Any] = []
        self._read = self._counted = self._bytes = 0

    def look(self, calls: Sequence[Any]) -> None:
        self._open += calls[self._read :]
        self._read = len(calls)
        for call in self._open:
            if call.status and isinstance(call.answer, dict):
                places, text = self._shown(call.answer)
                for place in places:
                    self._saw(place, text)
        self._open = [call for call in self._open if not call.status]

    def _saw(self, place: str, text: str) -> None:
        """Tell all who wait there. One answer is enough for what was said before its question, too."""
        waiting = self._waiting.get(place, [])
        for asked in waiting:
            asked.saw(text)
        if newest := max((asked.number for asked in waiting if asked.done.is_set()), default=0):
            for asked in waiting:
                if asked.number < newest:
                    asked.was_merged()
        waiting[:] = [asked for asked in waiting if not asked.done.is_set()]

    async def answer_of(self, place: str, asked: Asked) -> Asked:
        """Return *asked* once it is answered in its channel or thread."""
        self._waiting[place].append(asked)
        await asked.done.wait()
        return asked

    def sent(self, calls: Sequence[Any]) -> tuple[int, int]:
        """Return how many there are, and the bytes of what they brought along, as JSON."""
        self._bytes += sum(len(json.dumps(self._given(call))) for call in calls[self._counted :])
        self._counted = len(calls)
        return self._counted, self._bytes


class SlackWire(FakeSlack):
    """A loopback Slack, in which each conversation in a channel is a thread that begins with a mention."""

    def __init__(self) -> None:
        self._watch = Watch(lambda call: call.args, self._text_shown)
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
        return await self._watch.answer_of(channel if direct else conversation.thread, asked)

    def sent(self) -> tuple[int, int]:
        return self._watch.sent(self.calls)

    def changed(self) -> None:
        super().changed()
        self._watch.look(self.calls)

    def _text_shown(self, answer: dict[str, Any]) -> tuple[Sequence[str], str]:
        channel, ts = answer.get("channel"), answer.get("ts")
        if not isinstance(channel, str) or not isinstance(ts, str):
            return (), ""
        message = self.channels[channel].messages[ts]
        blocks = [block["text"] for block in message.blocks or () if block["type"] == "markdown"]
        # some answer a direct message in a thread, and some beside it; the text beside blocks may be cut short
        return (channel, message.root), "".join([message.text, *blocks])


class DiscordWire(FakeDiscord):
    """A loopback Discord, in which each conversation in the channel goes on in the thread of its first message."""

    def __init__(self) -> None:
        self._watch = Watch(lambda call: call.body, self._text_shown)
        super().__init__()
        self._members = [self.user(f"person{number}").id for number in range(PEOPLE)]

    @property
    def is_connected(self) -> bool:
        return self.ready > 0

    async def ask(self, conversation: Conversation, kind: Kind, number: int) -> Asked:
        person = self._members[conversation.person]
        direct = conversation.where == "direct"
        channel = self.dm(person) if direct else conversation.thread or CHANNEL
        text = question(kind, number) if direct else f"<@{BOT}> {question(kind, number)}"
        asked = Asked(number)
        said = self.say(person, channel, text)
        conversation.thread = channel if direct else conversation.thread or said.id
        return await self._watch.answer_of(conversation.thread, asked)

    def sent(self) -> tuple[int, int]:
        return self._watch.sent(self.calls)

    def changed(self) -> None:
        super().changed()
        self._watch.look(self.calls)

    def _text_shown(self, answer: dict[str, Any]) -> tuple[Sequence[str], str]:
        if "content" not in answer:
            return (), ""
        message = self.channels[answer["channel_id"]].messages[answer["id"]]
        # an answer of many messages may come as a file
        files = [file.decode() for file in message.files.values()]
        return (message.channel,), "".join([message.content, *files])
