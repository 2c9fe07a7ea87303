"""The whole bot, served as `bot.wiring.app.serve` does, with a scripted model and a platform that anybody may write in."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.patience import WITHIN_S
from tests.serving import Chat, serving
from tests.world import ANN, T1, Scripted, Step, calls, says
from threads.model import (
    Attachment,
    Author,
    Earlier,
    Incoming,
    Message,
    Outgoing,
    Spoken,
    ThreadId,
    ToolResult,
)
from threads.store.data_folder import thread_folder
from transports.base.transport import Capabilities

from .bench import CANARY, FakeNetwork, FakeSandbox, isolate

ADMIN = Author("U-admin", "the admin")
BOB = Author("U2", "bob")


class UserPlatform(Chat):
    """A platform where threads are older than the bot, people send and get files, and press buttons."""

    def __init__(
        self, earlier: Sequence[Spoken] = (), files: dict[str, bytes] | None = None, title: str = ""
    ) -> None:
        super().__init__()
        self.capabilities = Capabilities(find=True, earlier=True, files=True)
        self.spoken, self.files, self.title = list(earlier), files or {}, title
        self.attached: list[tuple[str, bytes]] = []

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        return Earlier(tuple(self.spoken), title=self.title)

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            yield self.files[attachment.id]

        yield chunks()

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        self.attached.append((name, file.read_bytes()))

    async def ask(
        self, text: str = "please help", *, names: Sequence[str] = (), thread: ThreadId = T1, quoted: str = ""
    ) -> Incoming:
        """Send ann's message with the files of these names, and what others say in it, and return it."""
        self.sent += 1
        files = tuple(Attachment(name, name, "text/plain", len(self.files[name])) for name in names)
        at = "2026-11-21T10:00:00+00:00"
        incoming = Incoming(f"m{self.sent}", thread, ANN, text, at, files=files, quoted=quoted)
        await self.sink(incoming)
        return incoming

    @property
    def questions(self) -> list[Outgoing]:
        return [post for post in self.posts if post.choices]

    async def question(self, number: int = 1) -> Outgoing:
        """Wait for the question of that number."""
        with anyio.fail_after(WITHIN_S):
            await self.until(lambda: len(self.questions) >= number)
        return self.questions[number - 1]

    async def question_id(self, number: int = 1) -> str:
        return (await self.question(number)).choices[0].command.split()[1]

    async def approve(self, number: int = 1) -> str:
        """Allow the call of a question once, and return the question's id."""
        question = await self.question_id(number)
        await self.say(f"/approve {question} once")
        return question

    async def deny(self, number: int = 1, thread: ThreadId = T1) -> None:
        await self.say(f"/deny {await self.question_id(number)}", thread=thread)

    async def settled_soon(self, message_id: str) -> None:
        with anyio.fail_after(WITHIN_S):
            await self.settled(message_id)


class Bot:
    """One bot with its platform, network, sandbox and model."""

    def __init__(self, folder: Path, platform: UserPlatform, network: FakeNetwork | None = None) -> None:
        self.folder, self.platform, self.network = folder, platform, network or FakeNetwork()
        self.sandbox, self.model = FakeSandbox(), Scripted()

    @property
    def workspace(self) -> Path:
        return thread_folder(self.folder / "data", T1) / "workspace"

    def results(self) -> list[dict[str, Any]]:
        """Return the results of all calls, in order, as the model read them."""
        messages = self.model.requests[-1].messages
        return [
            json.loads(block.content) for m in messages for block in m.blocks if isinstance(block, ToolResult)
        ]

    @asynccontextmanager
    async def serve(
        self, monkeypatch: pytest.MonkeyPatch, *script: Step, **settings: Any
    ) -> AsyncIterator[UserPlatform]:
        """Serve until the block ends; the next time it has the same data and the same platform."""
        isolate(monkeypatch, self.sandbox, self.network)
        self.model.script = deque(script)
        monkeypatch.setattr("bot.wiring.app.ModelChain", lambda *_args, **_more: self.model)
        async with serving(
            self.folder / "data",
            {"access": {"admins": [ADMIN.id]}, "tools": {}, **settings},
            model="offline/demo",
            environ={"ANTHROPIC_API_KEY": CANARY},
            chat=self.platform,
        ):
            yield self.platform


def step(*wanted: tuple[str, dict[str, Any]]) -> Message:
    """Return a model's step that makes these calls."""
    return Message(
        "assistant",
        tuple(
            call
            for n, (name, arguments) in enumerate(wanted, 1)
            for call in calls(name, id=f"c{n}", **arguments).calls
        ),
    )


def obedient_script(*before: Step, action: tuple[str, dict[str, Any]]) -> list[Step]:
    """Return the script of a model that does what the text tells it to."""
    return [*before, step(action), says("done")]
