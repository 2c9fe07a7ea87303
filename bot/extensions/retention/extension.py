"""The settings `retention`, the work that follows them, `/forget`, and `threadfast retention`, `forget`, `export`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial

from bot.config.settings import Settings
from bot.extensions.retention.settings import RETENTION
from bot.host.extension import Extension, Host, Running, ThreadCommand

COMMAND = ThreadCommand(
    "forget",
    "/forget",
    "erase what I keep of this thread, after a question",
    off="I cannot forget single threads here: my store is not a folder of files.",
)

FILES_ONLY = "retention: works for a data folder of files only; the store of these settings keeps everything."


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if host.settings.store.kind != "files":
        yield None
        return
    import anyio  # noqa: PLC0415

    from bot.extensions.retention.forget_again import forget_again  # noqa: PLC0415
    from bot.extensions.retention.forgotten import NAME, ForgottenFile  # noqa: PLC0415
    from bot.extensions.retention.sweep import Sweep  # noqa: PLC0415
    from bot.extensions.retention.thread_command import obey  # noqa: PLC0415

    await forget_again(host)
    rules = RETENTION.of(host.settings)
    forgotten = await host.states.open(NAME, ForgottenFile())
    running = Running(obey={COMMAND.name: partial(obey, host, forgotten)})
    if rules is None:
        yield running
        return
    sweep = Sweep(host, rules)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sweep.run)
        yield Running(obey=running.obey, receiving=sweep.receiving)
        tasks.cancel_scope.cancel()


def _warnings(settings: Settings) -> Iterable[str]:
    if RETENTION.of(settings) and settings.store.kind != "files":
        yield FILES_ONLY


extension = Extension(
    "retention",
    "forgets what is old, and all of a person or a thread when asked to",
    page="docs/operations.md",
    settings=(RETENTION,),
    thread_commands=(COMMAND,),
    open=_open,
    warnings=_warnings,
)
