"""A whole bot over one transport: real core, storage, SDKs and sockets; the model is a script."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from bot.tools.gate import Toolbox
from bot.wiring.app import utc_now
from bot.wiring.core import open_core
from tests.patience import WITHIN_S
from tests.tool_context import file_tools, make_toolbox
from tests.world import core_parts
from threads.background import background_tasks
from threads.store.data_folder import recent_threads
from threads.store.disk import PosixDisk
from threads.store.mark_file import MarkFile
from transports.base.transport import Transport

NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
PROXIES = (*NAMES, *map(str.lower, NAMES))

T = TypeVar("T", bound=Transport)


def surroundings(data: Path, name: str) -> dict[str, object]:
    """Return what a transport gets of its process."""

    async def recent(within_s: float, most: int):
        return await anyio.to_thread.run_sync(recent_threads, data, name, within_s, most)

    disk = PosixDisk()
    return {
        "disk": disk,
        "offload": anyio.to_thread.run_sync,
        "now": utc_now,
        "recent": recent,
        "marks": MarkFile(disk, data / f"{name}-marks.json"),
    }


@asynccontextmanager
async def bot_over(
    edge: T,
    data: Path,
    model: object,
    *,
    connected: bool = True,
    toolbox: Toolbox | None = None,
    **changes: object,
) -> AsyncIterator[T]:
    """Run a bot over *data* until the block ends, as a process would: nothing is told to shut down."""
    for name in PROXIES:
        os.environ.pop(name, None)
    offload = anyio.to_thread.run_sync
    toolbox = toolbox or make_toolbox(file_tools(offload, posts=True))
    async with background_tasks() as tasks:
        changes |= {"disk": PosixDisk(), "offload": offload, "now": utc_now}
        core = await open_core(tasks, core_parts(data, edge, model, toolbox, **changes))
        tasks.start_soon(partial(edge.serve, core.orchestrator.receive))
        if connected:
            with anyio.fail_after(WITHIN_S):
                await edge.reconnected()
        yield edge
