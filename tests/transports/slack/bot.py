"""A whole bot in a loopback Slack: real core, storage, SDKs and sockets; the model is a script."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from bot.agent import Agent
from bot.app import open_core, utc_now
from bot.tools.attach import Attach
from bot.tools.base import Toolbox
from bot.tools.files import ListFiles, ReadFile
from tests.fakes.slack import FakeSlack
from threads.disk import PosixDisk
from threads.model import Limits
from threads.workspace import recent_threads
from transports.slack.client import Options, Slack

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy")


def transport(slack: FakeSlack, data: Path, **options: object) -> Slack:
    async def recent(within_s: float, most: int):
        return await anyio.to_thread.run_sync(recent_threads, data, "slack", within_s, most)

    base = Options(slack.bot_token, slack.app_token, slack.api_base_url)
    return Slack(
        replace(base, **options),
        data,
        disk=PosixDisk(),
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=recent,
    )


@asynccontextmanager
async def bot_in(
    slack: FakeSlack,
    data: Path,
    model: object,
    *,
    limits: Limits = Limits(),
    connected: bool = True,
    options: dict[str, object] | None = None,
    **settings: object,
) -> AsyncIterator[Slack]:
    """Run a bot over *data* in *slack* until the block ends, as a process would: nothing is told to shut down."""
    for name in PROXIES:
        os.environ.pop(name, None)
    offload = anyio.to_thread.run_sync
    toolbox = Toolbox(
        [ReadFile(offload), ListFiles(offload), Attach(offload)], timeout_s={}, default_timeout_s=5
    )
    edge = transport(slack, data, **(options or {}))
    async with anyio.create_task_group() as tasks:
        core = await open_core(
            tasks,
            data,
            agent=lambda *places: Agent(model, toolbox, "You are kind.", *places),
            brain=model,
            transports=[edge],
            limits=limits,
            disk=PosixDisk(),
            offload=offload,
            now=utc_now,
            **settings,
        )
        tasks.start_soon(partial(edge.serve, core.orchestrator.receive))
        if connected:
            with anyio.fail_after(10):
                await edge.reconnected()
        yield edge
        tasks.cancel_scope.cancel()
