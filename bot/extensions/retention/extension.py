"""The settings `retention`, the work that follows them, `/forget`, and `threadfast retention`, `forget`, `export`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from bot.extensions.retention.settings import RETENTION
from bot.host.extension import Extension, Host, Running, ThreadCommand
from threads.background import background_tasks

COMMAND = ThreadCommand(
    "forget",
    "/forget",
    "erase what I keep of this thread, after a question",
    off="I cannot forget threads now.",
)


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:

    from bot.extensions.retention.forget_again import forget_again, forget_again_together  # noqa: PLC0415
    from bot.extensions.retention.forgotten import FILES, NAME, ForgottenFile, is_forgotten  # noqa: PLC0415
    from bot.extensions.retention.kept import KeptFiles, KeptTogether  # noqa: PLC0415
    from bot.extensions.retention.sweep import Sweep  # noqa: PLC0415
    from bot.extensions.retention.thread_command import obey  # noqa: PLC0415

    is_of_files = host.settings.store.kind == FILES
    if is_of_files:
        await forget_again(host)  # before the list is read: it may get longer
    forgotten = await host.states.open(NAME, ForgottenFile())
    if not is_of_files:
        await forget_again_together(host, forgotten)
    rules = RETENTION.of(host.settings)
    running = Running(
        obey={COMMAND.name: partial(obey, host, forgotten)},
        is_forgotten=lambda thread, line: is_forgotten(forgotten.value.receipts, thread, line),
    )
    if rules is None:
        yield running
        return
    sweep = Sweep(host, KeptFiles(host) if is_of_files else KeptTogether(host), rules)
    async with background_tasks() as tasks:
        tasks.start_soon(sweep.run)
        yield replace(running, receiving=sweep.receiving)


extension = Extension(
    "retention",
    "forgets what is old, and all of a person or a thread when asked to",
    page="docs/operations.md",
    settings=(RETENTION,),
    thread_commands=(COMMAND,),
    open=_open,
)
