"""The tool `search_threads`: what was said in other threads of the channel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.config.scopes import enabled_anywhere
from bot.host.extension import Extension, Host, Running

if TYPE_CHECKING:
    from bot.host.checks import Check, Context

GROUP = "thread_search"


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if GROUP not in host.enabled:
        yield None
        return
    from bot.extensions.thread_search.tool import SearchThreads  # noqa: PLC0415 - off by default

    tool = SearchThreads(host.settings, host.environ, host.work, host.transports)
    yield Running(tools={GROUP: [tool]})


def _checks(context: Context) -> Sequence[Check]:
    from bot.extensions.thread_search.checks import check_search  # noqa: PLC0415
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("thread search", check_search)] if GROUP in enabled_anywhere(context.settings) else []


extension = Extension(
    GROUP,
    "lets the model search what was said in other threads of the channel",
    page="docs/operations.md",
    open=_open,
    checks=_checks,
)
