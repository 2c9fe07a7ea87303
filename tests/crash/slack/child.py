"""The bot process of the crash run in Slack: the real transport and SDKs, and a model that writes numbered rows.

    python -m tests.crash.slack.child --data D --port P --seed S

Waits and paces that are there for the real Slack are scaled by ``--waits``, the rates that it allows accordingly.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial

import anyio.to_thread
from pydantic import JsonValue

from bot.extensions.postgres.marks import PostgresMarks
from bot.extensions.postgres.store import PostgresStore
from bot.routing import admission
from bot.wiring.app import utc_now
from tests.crash import child
from tests.crash.rows import Rows
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN
from threads.model import TurnLimits
from threads.store.data_folder import recent_threads
from threads.store.disk import Disk
from threads.store.mark_file import MarkFile
from transports.shared.backfill import catch_up, marks
from transports.shared.link import supervisor
from transports.shared.live import background_calls
from transports.slack import client
from transports.slack.api import rate_limits
from transports.slack.api.socket_mode import Kind
from transports.slack.client import Options, Slack
from transports.slack.events import catch_up as history
from transports.slack.events.intake import Intake
from transports.slack.events.parse_event import parse_event
from transports.slack.live import draft
from transports.slack.post import post_lookup, posting
from transports.slack.post.posting import Posting


def slack(args: argparse.Namespace, disk: Disk, store: PostgresStore | None) -> Slack:
    hurry(args.waits)
    if args.broken:
        (BROKEN.get(args.broken) or _forgetting_wrongly(args.broken))()

    async def recent(within_s: float, most: int):
        return await anyio.to_thread.run_sync(recent_threads, args.data, "slack", within_s, most)

    edge = Slack(
        Options(BOT_TOKEN, APP_TOKEN, f"http://127.0.0.1:{args.port}/api/"),
        args.data,
        disk=disk,
        offload=anyio.to_thread.run_sync,
        now=utc_now,
        recent=partial(store.recent, "slack") if store else recent,
        marks=store.marks("slack") if store else MarkFile(disk, args.data / "slack-marks.json"),
    )
    edge.limits = rate_limits.RateLimits(shared=store, workers=lambda: store.workers) if store else None
    return edge


def _forgetting_wrongly(name: str) -> Callable[[], object]:
    from tests.crash.retention import FORGETTING_WRONGLY  # noqa: PLC0415 - its extension may be missing

    return lambda: [one.start() for one in FORGETTING_WRONGLY[name]]


def hurry(scale: float) -> None:
    """Make the transport's waits, and the distances of its calls, so much shorter."""
    faster: Callable[[rate_limits.Rate], rate_limits.Rate] = lambda rate: rate_limits.Rate(  # noqa: E731
        int(rate.per_minute / scale), rate.burst, rate.first
    )
    rate_limits.RATES = {method: faster(rate) for method, rate in rate_limits.RATES.items()}
    rate_limits.TIER_4, rate_limits.CHANNEL = faster(rate_limits.TIER_4), faster(rate_limits.CHANNEL)
    rate_limits.FLOORS_S = {method: floor * scale for method, floor in rate_limits.FLOORS_S.items()}
    rate_limits.FLOOR_S *= scale
    draft.FIRST_AFTER_S *= scale
    posting.PAUSE_S *= scale
    client.TIDY_AFTER_S *= scale
    client.OUTCOMES_FIRST_S *= scale
    admission.MENTION_WITHIN_S *= scale
    marks.SAVE_EVERY_S *= scale
    background_calls.AGAIN_S = tuple(pause * scale for pause in background_calls.AGAIN_S)
    supervisor.PROBE_EVERY_S *= scale
    catch_up.PAUSES_S = tuple(pause * scale for pause in catch_up.PAUSES_S)
    history.PAUSES_S = tuple(pause * scale for pause in history.PAUSES_S)
    # as much longer than the ack budget as it is for real
    MarkFile.overlap_s = max(1, round(MarkFile.overlap_s * 2 * scale))
    PostgresMarks.overlap_s *= scale
    supervisor.FIRST_PAUSE_S *= scale


def blind() -> None:
    """Find no post again."""

    async def find(*_: object, **__: object) -> None:
        return None

    Posting.find = find  # type: ignore[method-assign,assignment]


def hasty() -> None:
    """Acknowledge, and note as read, before anything is durable."""
    take = Intake.take

    async def at_once(self: Intake, kind: Kind, body: Mapping[str, JsonValue]) -> None:
        if moved := parse_event(dict(body), self._me).moved:
            self._marks.move(*moved)
        self._tasks.start_soon(take, self, kind, body)

    Intake.take = at_once  # type: ignore[method-assign]


def restless() -> None:
    """Let a mark follow live messages while a catch-up is under way."""

    def settle(self: marks.ChannelProgress) -> None:
        self.mark = self.scale.later(self.mark, self.seen)

    marks.ChannelProgress.settle = settle  # type: ignore[method-assign]


def forgetful() -> None:
    """Keep the channels that are new in memory only, for a while."""
    marks.Marks.unwritten = False  # type: ignore[method-assign,assignment]
    marks.SAVE_EVERY_S = 2.0


def untidy() -> None:
    """Leave what a killed process was about to write."""
    post_lookup.orphans = lambda *_: []


def deaf() -> None:
    """Never look for what was missed."""
    Intake.missed = lambda _: None  # type: ignore[method-assign]


BROKEN: dict[str, Callable[[], None]] = {
    fault.__name__: fault for fault in (blind, hasty, restless, forgetful, untidy, deaf)
}


if __name__ == "__main__":
    child.main(slack, Rows(), TurnLimits(running_turns=12, turn_timeout_s=4.0))
