"""Playbooks: `/play` in threads, `threadfast playbooks`, and the checks of what is in their folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from bot.host.extension import Extension, Host, Running, ThreadCommand

if TYPE_CHECKING:
    from bot.host.checks import Check, Context

COMMAND = ThreadCommand(
    "play",
    "/play [NAME …]",
    "list the playbooks, or play one; also `status`, `stop`, `skip`, `retry [STAGE]` and `at`",
    off="There are no playbooks here.",
)


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running]:
    from bot.extensions.playbooks.plays import open_plays  # noqa: PLC0415 - slow

    plays = await open_plays(host)
    yield Running(obey={"play": plays.command}, turns={"play": plays})


def _checks(_: Context) -> Sequence[Check]:
    from bot.extensions.playbooks.checks import check_playbooks  # noqa: PLC0415 - slow
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("playbooks", check_playbooks)]


def _faults(settings: Settings) -> Iterable[str]:
    from bot.extensions.playbooks.folder import Library  # noqa: PLC0415 - slow

    return Library.of(settings).problems()


extension = Extension(
    "playbooks",
    "plays work in stages, each with its own prompt, tools, model, checks and money",
    page="docs/playbooks.md",
    thread_commands=(COMMAND,),
    open=_open,
    checks=_checks,
    faults=_faults,
)
