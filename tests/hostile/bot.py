"""The whole bot, served as `bot.wiring.app.serve` does, with a script for a model and a platform that anybody may write in."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from bot.config.settings import Settings
from bot.wiring.app import serve
from tests.serving import Chat
from tests.world import ANN, T1, Scripted, Step, calls, says
from threads.model import Attachment, Author, Incoming, Message, Outgoing, Spoken, ThreadId, ToolResult
from threads.store.data_folder import thread_folder
from transports.base.transport import Capabilities

from .bench import CANARY, Net, Stage, secure

ADMIN = Author("U-admin", "the admin")
BOB = Author("U2", "bob")


class Hall(Chat):
    """A platform where threads are older than the bot, files come and go, and people press buttons."""

    def __init__(self, earlier: Sequence[Spoken] = (), files: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.capabilities = Capabilities(find=True, earlier=True, files=True)
        self.spoken, self.files = list(earlier), files or {}
        self.taken: list[tuple[str, bytes]] = []

    async def earlier(self, thread: ThreadId, before: str) -> Sequence[Spoken]:
        return self.spoken

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            yield self.files[attachment.id]

        yield chunks()

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        self.taken.append((name, file.read_bytes()))

    async def ask(
        self, text: str = "please help", *, names: Sequence[str] = (), thread: ThreadId = T1
    ) -> Incoming:
        """Send ann's message with the files of these names, and return it."""
        self.sent += 1
        files = tuple(Attachment(name, name, "text/plain", len(self.files[name])) for name in names)
        incoming = Incoming(f"m{self.sent}", thread, ANN, text, "2026-11-21T10:00:00+00:00", files=files)
        await self.sink(incoming)
        return incoming

    async def asked(self, number: int = 1) -> Outgoing:
        """Wait for the question of that number."""

        def questions() -> list[Outgoing]:
            return [post for post in self.posts if post.choices]

        with anyio.fail_after(10):
            while len(questions()) < number:
                await anyio.sleep(0.005)
        return questions()[number - 1]

    @property
    def questions(self) -> list[Outgoing]:
        return [post for post in self.posts if post.choices]


class Bot:
    """One bot and all that is to be seen of it."""

    def __init__(self, folder: Path, hall: Hall, net: Net) -> None:
        self.folder, self.hall, self.net, self.stage = folder, hall, net, Stage()
        self.model = Scripted()

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
    async def life(self, monkeypatch: pytest.MonkeyPatch, *script: Step, **given: Any) -> AsyncIterator[Hall]:
        """Serve until the block ends; a second life has the same data and the same platform."""
        secure(monkeypatch, self.stage, self.net)
        self.model.script = deque(script)
        monkeypatch.setattr("bot.wiring.app.ModelChain", lambda *_args, **_more: self.model)
        given = {"access": {"admins": [ADMIN.id]}, **given}
        settings = Settings.model_validate({"data": self.folder / "data", **given}, strict=False)
        hall = self.hall
        hall.ready = anyio.Event()
        async with anyio.create_task_group() as tasks:
            environ = {"ANTHROPIC_API_KEY": CANARY}

            async def run() -> None:
                await serve(settings, environ, model="offline/demo", make_transports=lambda _: [hall])

            tasks.start_soon(run)
            with anyio.fail_after(20):
                await hall.ready.wait()
            yield hall
            tasks.cancel_scope.cancel()


def step(*wanted: tuple[str, dict[str, Any]]) -> Message:
    """Return a model's step that makes these calls."""
    return Message("assistant", tuple(_call(n, name, given) for n, (name, given) in enumerate(wanted, 1)))


def _call(number: int, name: str, given: dict[str, Any]) -> Any:
    return calls(name, id=f"c{number}", **given).calls[0]


def obeys(*before: Step, action: tuple[str, dict[str, Any]]) -> list[Step]:
    """Return the script of a model that does as the text it has read tells it to."""
    return [*before, step(action), says("done")]


Prepare = Callable[[Bot], Awaitable[None] | None]
