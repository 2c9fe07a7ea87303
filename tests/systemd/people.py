"""People who write to the bot over a loopback Slack, a model that takes its time, and what became of each message."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from tests.fakes.anthropic import FakeAnthropic, Text, Tool, answer
from tests.fakes.http import Reply, Seen, Wait
from tests.fakes.slack import FakeSlack, Message

TOKEN = re.compile(r"k\d+x\d+")
RUN = re.compile(r"run (.*)")
THINKING_S = 1.0
"""How long the model takes: turns are under way whenever a process dies."""
PAUSE_S = 1.0
"""Between an answer and the next message: Slack itself lets a bot post once a second and channel."""


@dataclass
class Spoken:
    token: str
    channel: str
    root: str
    at: float
    answered_at: float | None = None


@dataclass
class Crowd:
    """*slack* and *model* live as long as the proof; processes come and go."""

    slack: FakeSlack
    model: FakeAnthropic
    spoken: list[Spoken] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def ask(
        self, text: str = "", user: str = "U1", channel: str = "C1", root: str = "", limit_s: float = 30.0
    ) -> Spoken:
        """Say something and wait for its answer. Raises TimeoutError."""
        spoken = self.say(text, user, channel, root)
        await self.answered(spoken, limit_s)
        return spoken

    def say(self, text: str, user: str, channel: str, root: str = "") -> Spoken:
        token = f"k{next(self._numbers)}x{len(self.spoken)}"
        words = f"{'<@UBOT> ' if channel[0] == 'C' and not root else ''}please answer {token} {text}"
        said = self.slack.say(user, channel, words.strip(), thread_ts=root or None)
        spoken = Spoken(token, channel, root or said.ts, time.monotonic())
        self.spoken.append(spoken)
        return spoken

    async def answered(self, spoken: Spoken, limit_s: float = 30.0) -> None:
        await self.slack.until(lambda: self.answers(spoken), limit_s)
        spoken.answered_at = time.monotonic()

    def answers(self, spoken: Spoken) -> list[str]:
        """Return what people see of the answers to one message."""
        shown = (seen(m) for m in self.slack.thread(spoken.channel, spoken.root) if m.ours)
        return [text for text in shown if f"re {spoken.token}." in text]

    @asynccontextmanager
    async def talking(self, people: int = 8) -> AsyncIterator[None]:
        """Have so many people write in this block, each the next message when the last one was answered.

        The block ends when all that was said has its answer, or 30 s later.
        """
        ended = anyio.Event()
        async with anyio.create_task_group() as tasks:
            for number in range(people):
                tasks.start_soon(self._converse, number, ended)
            yield
            ended.set()

    async def _converse(self, number: int, ended: anyio.Event) -> None:
        person = random.Random(number)
        await anyio.sleep(person.uniform(0, 2 * PAUSE_S))
        user = f"U{number % 3 + 1}"
        channel = f"D{number % 3 + 1}" if number < 3 else f"C{number}"
        root = ""
        while not ended.is_set():
            spoken = self.say("", user, channel, root)
            root = spoken.root
            try:
                await self.answered(spoken)
            except TimeoutError:
                return  # `lost` tells
            await anyio.sleep(person.uniform(0, 2 * PAUSE_S))

    def lost(self) -> list[str]:
        return [spoken.token for spoken in self.spoken if not self.answers(spoken)]

    def doubled(self) -> list[str]:
        return [spoken.token for spoken in self.spoken if len(self.answers(spoken)) > 1]

    def open_at(self, moment: float) -> list[Spoken]:
        """Return whose answer was awaited then."""
        return [s for s in self.spoken if s.at < moment and (s.answered_at is None or s.answered_at > moment)]


def seen(message: Message) -> str:
    blocks = [block["text"] for block in message.blocks or () if block["type"] == "markdown"]
    return "\n".join(blocks) or message.text


def think(request: Seen) -> Reply:
    """Name the messages that are answered; do what "run …" says first."""
    tokens: list[str] = []
    commands: list[str] = []
    results: list[str] = []
    for message in request.json["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant" and not any(block["type"] == "tool_use" for block in blocks):
            tokens, commands, results = [], [], []
        for block in blocks if message["role"] == "user" else ():
            if block["type"] == "tool_result":
                results.append(str(block["content"]))
            elif block["type"] == "text":
                tokens += TOKEN.findall(block["text"])
                commands += RUN.findall(block["text"])
    if len(results) < len(commands):
        number = len(results)
        return answer(Tool(f"c-{tokens[-1]}-{number}", "shell", {"command": commands[number]}))
    reply = answer(Text(" ".join(f"re {token}. " for token in tokens) + " ".join(results)))
    thought = anyio.Event()
    asyncio.get_running_loop().call_later(THINKING_S, thought.set)
    return Reply((Wait(thought), *reply.steps), headers=reply.headers)
