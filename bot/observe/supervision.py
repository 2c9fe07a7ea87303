"""Starts and stops everything that observes the running bot."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

from bot.config.settings import Observe
from bot.observe.event_server import EventServer
from bot.observe.event_stream import EventStream
from bot.observe.http_pages import StatusPages, pages
from bot.observe.http_server import serve_pages
from bot.observe.live_parts import LiveParts
from bot.observe.loop_lag import LoopLag
from bot.observe.shutdown import Stop
from bot.observe.systemd_notify import Notify
from bot.observe.watchdog import Watchdog
from bot.observe.worker_threads import watch_workers
from bot.ports.status import Status
from threads.background import background_tasks

LEAVE_S = 15.0
"""Time to close the links and exit after the last turn: Discord needs 5.5 s; the rest is margin."""

COLLECT_EVERY_S = 60.0
"""Seconds between two collections of young objects.

The SDKs leave some 30 objects in cycles for each message. The collector's own threshold lets 50,000 of them wait, see
`bot.cli.COLLECT_AFTER`: on a bot with little to do that is 10 MB which nobody uses.
"""


@asynccontextmanager
async def supervised(
    live: LiveParts,
    *,
    observe: Observe,
    stop: Stop,
    notify: Notify,
    events: EventStream,
    others: StatusPages,
    publish: Callable[[Callable[[], Status]], None] = lambda _: None,
) -> AsyncIterator[None]:
    """Observe the bot while it serves in this block. A stop cancels the block.

    *others* are pages of extensions. *publish* gets the function that returns the bot's status.
    """
    lag, workers = LoopLag(observe.slow_loop_ms / 1000), watch_workers(live.data, live.disk_threads)
    watchdog = Watchdog(live, lag, workers, notify, stopping=stop.asked.is_set)
    publish(watchdog.status)
    on_socket = EventServer(events, live.mask), live.posts
    with lag.watching():
        async with background_tasks() as tasks:
            tasks.start_soon(workers.run)
            tasks.start_soon(watchdog.run)
            tasks.start_soon(collect_garbage)
            tasks.start_soon(prepare_first_answer, watchdog, live)
            async with (
                serve_pages(pages(watchdog, others), live.data, observe.metrics_port, *on_socket),
                stop.draining(live, lambda drain_s: notify.stopping(drain_s + LEAVE_S)),
            ):
                yield


async def collect_garbage() -> None:
    """Collect young objects now and then. The old ones are left to the collector: to read them all takes long."""
    while True:
        await anyio.sleep(COLLECT_EVERY_S)
        gc.collect(1)


async def prepare_first_answer(watchdog: Watchdog, live: LiveParts) -> None:
    """Prepare the first answer, but not before the bot is ready: that would be later then."""
    await watchdog.announced.wait()
    await live.prepare()
