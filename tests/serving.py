"""The whole program in a test: real settings, SDKs and sockets, on a platform in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from bot.config.extensions import named_in, settings_model
from bot.config.load import SettingsFile
from bot.config.scopes import CurrentSettings
from bot.observe.event_stream import EventStream
from bot.observe.turn_events import Observing
from bot.wiring.app import serve
from bot.wiring.chat import completed
from bot.wiring.reload import Reload
from tests.patience import WITHIN_S
from tests.world import ANN, T1, Platform, message
from threads.background import background_tasks
from threads.model import Author, Incoming, Outgoing, Sink, ThreadId

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-test", "OPENAI_API_KEY": "sk-test"}
FAST = {
    "llm_retry": {"base_delay_ms": 1, "max_delay_ms": 4},
    "breaker": {"max_wait_s": 0.2},
    "tools": {"enabled": ["files"]},
}


class Chat(Platform):
    """A platform on which people write and wait for the answer. ``sent`` counts their messages."""

    def __init__(self) -> None:
        super().__init__()
        self.sink: Sink
        self.ready = anyio.Event()
        self.sent = 0

    async def serve(self, sink: Sink) -> None:
        self.sink = sink
        self.ready.set()
        await anyio.sleep_forever()

    async def send(self, text: str, *, author: Author = ANN, thread: ThreadId = T1) -> Incoming:
        self.sent += 1
        incoming = message(self.sent, text, thread, author)
        await self.sink(incoming)
        return incoming

    async def say(self, text: str, *, author: Author = ANN, thread: ThreadId = T1) -> Outgoing:
        """Write, wait until it is settled, and return the post that settled it."""
        incoming = await self.send(text, author=author, thread=thread)
        with anyio.fail_after(WITHIN_S):
            await self.settled(incoming.id)
        return next(post for post in reversed(self.posts) if post.reply_to == incoming.id)


@asynccontextmanager
async def serving(
    data: Path,
    fields: Mapping[str, object],
    *,
    model: str = "",
    environ: Mapping[str, str] = KEYS,
    chat: Chat | None = None,
    events: EventStream | None = None,
    observing: Observing | None = None,
    file: Path | None = None,
) -> AsyncIterator[Chat]:
    """Serve over *data* on *chat* until the block ends; *fields* are those of the settings.

    Changes of *file* are taken up. It has to hold the same settings at first.
    """
    settings = settings_model(named_in(fields)).model_validate({**FAST, **fields, "data": data}, strict=False)
    chat, reload = chat or Chat(), None
    if file:
        complete = partial(completed, settings, model or settings.model)
        reload = Reload(CurrentSettings(settings), SettingsFile(file, data), environ, complete)
    events = events or EventStream()
    chat.ready = anyio.Event()  # a chat that served before would count as ready at once
    async with background_tasks() as tasks:

        async def run() -> None:
            await serve(
                settings,
                environ,
                model=model or settings.model,
                make_transports=lambda _: [chat],
                observing=observing or Observing(events),
                on_audit=events.audited,
                reload=reload,
            )

        tasks.start_soon(run)
        with anyio.fail_after(WITHIN_S):
            await chat.ready.wait()
        yield chat


def anthropic(base_url: str, **more: object) -> dict[str, object]:
    return {
        "anthropic": {"kind": "anthropic", "api_key": "env:ANTHROPIC_API_KEY", "base_url": base_url, **more}
    }


def openai(base_url: str, **more: object) -> dict[str, object]:
    return {"openai": {"kind": "openai", "api_key": "env:OPENAI_API_KEY", "base_url": base_url, **more}}


def compatible(name: str, base_url: str, **more: object) -> dict[str, object]:
    """Return a provider that costs nothing, unless a test says otherwise."""
    return {name: {"kind": "openai-compatible", "base_url": base_url, "free": True, **more}}
