"""Everything that looks after the running bot, from when it serves until it stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from bot.config.settings import Observe
from bot.observe.http_pages import Metrics, pages
from bot.observe.http_server import answered
from bot.observe.live_parts import Live
from bot.observe.loop_lag import LoopLag
from bot.observe.shutdown import Stop
from bot.observe.systemd_notify import Notify
from bot.observe.watchdog import Vitals
from bot.observe.worker_threads import workers_over

LEAVE_S = 15.0
"""How long closing the links and leaving may take after the turns have ended: Discord's 5.5 s, and room."""


@asynccontextmanager
async def watching(
    live: Live, *, observe: Observe, stop: Stop, notify: Notify, metrics: Metrics | None = None
) -> AsyncIterator[None]:
    """Look after the bot while it serves in this block, which is cancelled when *stop* says so."""
    lag, workers = LoopLag(observe.slow_loop_ms / 1000), workers_over(live.data)
    vitals = Vitals(live, lag, workers, notify, stopping=stop.asked.is_set)
    with lag.watching():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.run)
            tasks.start_soon(vitals.run)
            async with (
                answered(pages(vitals, metrics), live.data, observe.metrics_port),
                stop.draining(live, lambda drain_s: notify.stopping(drain_s + LEAVE_S)),
            ):
                yield
            tasks.cancel_scope.cancel()
