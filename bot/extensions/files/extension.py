"""The tools that read, write, search and post files of a thread's workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bot.host.extension import Extension, Host, Running


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if "files" not in host.enabled:
        yield None
        return
    from bot.extensions.files.attach import Attach  # noqa: PLC0415 - for a running bot
    from bot.extensions.files.edit import EditFile  # noqa: PLC0415
    from bot.extensions.files.fetch import FetchFile  # noqa: PLC0415
    from bot.extensions.files.read import ListFiles, ReadFile  # noqa: PLC0415
    from bot.extensions.files.search import SearchFiles  # noqa: PLC0415
    from bot.extensions.files.write import WriteFile  # noqa: PLC0415

    work, writer = host.work, host.writer
    tools = ReadFile(work), ListFiles(work), SearchFiles(work), WriteFile(writer), EditFile(writer)
    posts = [Attach(work, host.mask)] if any(one.capabilities.files for one in host.transports) else []
    fetches = [FetchFile()] if any(one.capabilities.earlier for one in host.transports) else []
    yield Running({"files": [*tools, *posts, *fetches]})


extension = Extension(
    "files",
    "lets the model read, write, search and post files of a thread",
    page="docs/operations.md",
    open=_open,
)
