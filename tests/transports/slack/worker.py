"""A worker of several over one database, in a loopback Slack."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio

from bot.extensions.postgres.store import PostgresStore
from tests.fakes.slack import FakeSlack
from tests.transports.bot import bot_over, surroundings
from transports.slack.api.rate_limits import RateLimits
from transports.slack.client import Options, Slack


@asynccontextmanager
async def worker_in(
    slack: FakeSlack, dsn: str, data: Path, model: object, *, stores: bool = True, max_age_s: float = 600
) -> AsyncIterator[Slack]:
    """Run a worker with a data folder of its own until the block ends, as a process would that is killed.

    One that does not *store* hangs before it could.
    """
    store = PostgresStore(dsn, data, name="w", version="1", now=partial(datetime.now, UTC))
    if not stores:
        store.journal.receive = lambda *_: anyio.sleep_forever()
    options = Options(slack.bot_token, slack.app_token, slack.api_base_url, max_age_s=max_age_s)
    given = {"recent": partial(store.recent, "slack"), "marks": store.marks("slack")}
    edge = Slack(options, data, **surroundings(data, "slack") | given)
    edge.limits = RateLimits(shared=store, workers=lambda: store.workers)
    edge.others_seen = lambda: store.others_seen
    try:
        async with bot_over(edge, data, model, store=store):
            yield edge
    finally:
        with anyio.CancelScope(shield=True):
            await store.abort()
