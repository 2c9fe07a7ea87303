"""nanobot's own core, run by the Python of its environment: message bus, agent loop, session store, its defaults.

Messages come in and answers leave through `MessageBus`, where its Slack and Discord channels stand. The workspace is
the default one under HOME, which the parent sets to the data folder.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import nanobot.utils.helpers
from loguru import logger
from nanobot import __version__
from nanobot.agent.hooks import create_file_edit_activity_hook
from nanobot.agent.loop import AgentLoop
from nanobot.agent.tools.registry import ToolRegistry
from nanobot.bus.events import InboundMessage
from nanobot.bus.queue import MessageBus
from nanobot.config.schema import Config
from nanobot.providers.base import LLMProvider, LLMResponse
from nanobot.providers.factory import make_provider
from nanobot.session.manager import SessionManager
from nanobot.session.recovery import RecoveryCoordinator

from benchmarks.versus.peers.harness import (
    ANSWER,
    WARM_UP,
    Fsyncs,
    Meter,
    SlowDown,
    Task,
    message_id,
    say,
    text,
)


def _count_tokens_by_bytes() -> None:
    """Use nanobot's estimate from bytes from the start.

    Its tokenizer costs more, and downloads a file first; without that file it tries again at every message.
    """

    def missing() -> Any:
        raise LookupError

    nanobot.utils.helpers._get_token_encoding = missing


class _Constant(LLMProvider):
    def __init__(self, step: str) -> None:
        super().__init__(provider_name="bench")
        self._slow_down = SlowDown(step)

    async def chat(self, *_: Any, **__: Any) -> LLMResponse:
        await self._slow_down.think()
        return LLMResponse(content=ANSWER)

    def get_default_model(self) -> str:
        return "bench/instant"


class _Bot:
    """The agent loop between the two queues of its bus."""

    def __init__(self, task: Task) -> None:
        config, extra = Config(), {}
        if task.model_url:
            config.providers.custom.api_base = task.model_url
            config.providers.custom.api_key = "none"
            config.agents.defaults.provider = "custom"
            config.agents.defaults.model = "instant"
        else:
            extra["model"] = "bench/instant"
        provider = make_provider(config) if task.model_url else _Constant(task.step)
        nanobot.utils.helpers.sync_workspace_templates(config.workspace_path, silent=True)
        self._bus = MessageBus()
        sessions = SessionManager(config.workspace_path)
        self._recovery = RecoveryCoordinator(sessions=sessions, bus=self._bus, unified_session=False)
        self._loop = AgentLoop.from_config(
            config,
            self._bus,
            provider=provider,
            tool_registry=ToolRegistry(),
            session_manager=sessions,
            recovery_admission=self._recovery,
            hook_factories=[create_file_edit_activity_hook],
            **extra,
        )
        self._report = task.step != "converse"
        self._waiting: dict[str, asyncio.Event] = {}

    async def run(self) -> None:
        """Look for interrupted turns, then serve, as its gateway does."""
        await self._recovery.scan()
        await asyncio.gather(self._loop.run(), self._deliver())

    async def _deliver(self) -> None:
        """Post the answers, as nanobot's outbound dispatcher does."""
        while True:
            outbound = await self._bus.consume_outbound()
            if outbound.event is None and outbound.content == ANSWER:
                thread = int(outbound.chat_id.removeprefix("C"))
                answered = outbound.metadata.get("message_id") or message_id(thread, 0)
                if self._report:
                    say("answered", id=answered)
                if (waiting := self._waiting.pop(answered, None)) is not None:
                    waiting.set()

    async def receive(self, thread: int, n: int) -> None:
        """Hand a message over, after which its Slack channel has long acknowledged it."""
        await self._bus.publish_inbound(
            InboundMessage(
                channel="slack",
                sender_id=f"U{thread}",
                chat_id=f"C{thread}",
                content=text(thread, n),
                metadata={"message_id": message_id(thread, n)},
                session_key_override=f"slack:C{thread}:1700000000.{thread:06}",
            )
        )

    async def converse(self, threads: range, messages: int) -> None:
        async def one(thread: int) -> None:
            for n in range(messages):
                answered = self._waiting[message_id(thread, n)] = asyncio.Event()
                await self.receive(thread, n)
                await answered.wait()

        await asyncio.gather(*map(one, threads))


async def main() -> None:
    task, fsyncs = Task.read(), Fsyncs()
    logger.remove()
    _count_tokens_by_bytes()
    bot = _Bot(task)
    running = asyncio.create_task(bot.run())
    if task.step == "converse":
        await bot.converse(range(task.threads, task.threads + WARM_UP), 1)
        meter = Meter(fsyncs)
        await bot.converse(range(task.threads), task.messages)
        meter.say(__version__)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return
    if task.step == "accept":
        for thread in range(task.threads):
            await bot.receive(thread, 0)
            say("accepted", id=message_id(thread, 0))
    say("started")
    await running


if __name__ == "__main__":
    asyncio.run(main())
