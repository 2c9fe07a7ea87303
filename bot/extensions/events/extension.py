"""Events from outside that start a turn: `threadfast post`, and a webhook on a port of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bot.extensions.events.settings import EVENTS
from bot.host.extension import Extension, Host, Running

if TYPE_CHECKING:
    from bot.host.checks import Check, Context


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if (given := EVENTS.of(host.settings)) is None:
        yield None
        return
    from bot.extensions.events.running import open_events  # noqa: PLC0415 - only where there are some

    async with open_events(given, host) as running:
        yield running


def _checks(context: Context) -> Sequence[Check]:
    from bot.extensions.events.checks import check_events  # noqa: PLC0415
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("events", check_events)] if EVENTS.of(context.settings) else []


extension = Extension(
    "events",
    "lets events from outside start turns",
    page="docs/operations.md",
    settings=(EVENTS,),
    open=_open,
    checks=_checks,
)
