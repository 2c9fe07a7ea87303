"""Reading missed messages from the history: Socket Mode has no replay.

In a channel with a gap the history is read back to the mark, then the replies in threads that moved since, and in
those that the bot takes part in. All go to the sink, oldest first (see `transports.shared.backfill.catch_up`).

Replies are not found in a thread whose root is older than the pages read, and in which the bot takes no part: Slack
lists no such threads, and bots cannot search.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed, TransportRejected
from threads.model import Incoming, WallClock
from transports.shared.backfill.catch_up import Verdict
from transports.shared.backfill.marks import Marks
from transports.shared.backfill.message_time import NEVER
from transports.shared.retry import retry
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import (
    Shape,
    identifier,
    instant,
    is_direct,
    is_stamp,
    part,
    parts,
    stamp,
    string,
)
from transports.slack.api.web_api import WebApi
from transports.slack.events.lookups import Lookups
from transports.slack.events.parse_message import Me, parse_message

log = logging.getLogger(__name__)

PAGE = 200
"""Slack's recommended maximum; apps distributed outside its marketplace get 15."""

MOST_PAGES = 1_000
"""Pages of one listing: 20 minutes at 50 calls a minute."""

MOST_AT_ONCE = 10_000
"""Messages of one round; the oldest come first."""

OUTCOMES_FIRST_S = 5.0
"""Reading waits so long after a start with pending answers: look-ups before their posts need the same calls."""

NAMED_WITHIN_S = 2.0
"""How long a page waits for the names that its messages leave out."""

PAUSES_S = (1.0, 4.0)
"""Waits before retries: without them a channel with many threads would hardly ever be read whole."""

GONE = frozenset({"channel_not_found", "not_in_channel", "is_archived", "is_inactive"})


def _log_retry(error: PostFailed, fields: Mapping[str, object]) -> None:
    log.info("catch_up.again: a call failed, trying again: %s", error, extra=fields)


@dataclass(slots=True)
class CatchUpRound:
    """One round of a catch-up in one channel: the oldest ``most`` messages after ``since``.

    ``cut``: there are more. ``threads`` are to be read. The pages so far do not show whether those in ``unsure``
    moved. ``back`` counts the pages that were read for their sake.
    """

    since: Decimal
    most: int
    messages: dict[str, Incoming] = field(default_factory=dict)
    threads: dict[str, None] = field(default_factory=dict)
    cut: bool = False
    unsure: set[str] = field(init=False)
    back: int = 0

    def __post_init__(self) -> None:
        self.unsure = {*self.threads}

    def add(self, messages: Sequence[Incoming]) -> None:
        self.messages.update(
            {message.id: message for message in messages if instant(message.id) > self.since}
        )
        if len(self.messages) > self.most:
            self.messages = {message.id: message for message in self.ordered()[: self.most]}
            self.cut = True

    def ordered(self) -> list[Incoming]:
        return sorted(self.messages.values(), key=lambda message: instant(message.id))

    def note(self, message: Shape) -> bool:
        """Note whether a message shows a thread that moved. Returns False for one before ``since``."""
        ts, root, latest = (stamp(message, name) for name in ("ts", "thread_ts", "latest_reply"))
        self.unsure -= {ts, root}
        if root and instant(latest or ts or root) > self.since:
            self.threads[root] = None
        elif latest or not root:
            self.threads.pop(root or ts, None)
        return not ts or instant(ts) > self.since

    def goes_back(self) -> bool:
        """Return whether to read one more page: it may show many threads, which take a call each otherwise."""
        self.back += 1
        return len(self.unsure) > self.back


class ChannelHistory:
    """Reads a workspace's history, for `transports.shared.backfill.catch_up`.

    ``active_threads`` returns, by channel, the roots of recent threads that the bot takes part in; it is called once
    per gap. Nothing is read before ``not_before`` on the clock of `anyio.current_time`.
    """

    def __init__(
        self,
        web: WebApi,
        marks: Marks,
        me: Me,
        lookups: Lookups,
        sink: Callable[[Incoming], Awaitable[object]],
        *,
        active_threads: Callable[[], Awaitable[Mapping[str, Sequence[str]]]],
        now: WallClock,
        max_age_s: float = 600,
        not_before: float = 0.0,
    ) -> None:
        self._web, self._marks, self._me, self._lookups, self._sink = web, marks, me, lookups, sink
        self._active_threads, self._now, self._max_age_s = active_threads, now, max_age_s
        self._not_before = not_before
        self._active: Mapping[str, Sequence[str]] = {}
        self._active_of = 0
        """The gap for which ``_active`` was read."""
        self._lock = anyio.Lock()

    def verdict(self, refused: TransportRejected) -> Verdict:
        match refused:
            case SlackRefused(kind="token"):
                return "token"
            case SlackRefused(error=error) if error in GONE:
                return "gone"
            case SlackRefused(kind="other" | "shape"):  # a cursor may expire
                return "moment"
            case _:
                return "unread"

    async def look(self) -> None:
        """Follow the DMs that were opened during the gap."""
        await anyio.sleep_until(self._not_before)
        since = self._marks.alive_at

        async for page in self._pages("users.conversations", "channels", types="im"):
            for channel in filter(None, (identifier(one, "id") for one in page)):
                self._marks.start(channel, since, missed=True)

    async def read(self, channel: str, gap: int) -> str:
        """Hand over the missed messages of a channel, oldest first, in rounds."""
        await anyio.sleep_until(self._not_before)
        round_ = await self._new_round(channel, gap)
        while True:
            # A thread that is quiet when it is read may get a message later in this round.
            began, upto = self._marks.clock(), NEVER
            await self._fill(channel, round_)
            for incoming in round_.ordered():
                await self._sink(replace(incoming, stale=self._is_stale(incoming)))
                upto = incoming.id
            if not round_.cut:
                return min(upto, began, key=instant)
            log.info(
                "catch_up.long: more than %d messages were missed in %s: going on", MOST_AT_ONCE, channel
            )
            round_ = CatchUpRound(instant(upto), MOST_AT_ONCE, threads=round_.threads)

    def _is_stale(self, incoming: Incoming) -> bool:
        return self._now().timestamp() - float(instant(incoming.id)) > self._max_age_s

    async def _new_round(self, channel: str, gap: int) -> CatchUpRound:
        async with self._lock:
            if self._active_of < gap:
                self._active, self._active_of = await self._active_threads(), gap
        threads = dict.fromkeys(filter(is_stamp, self._active.get(channel, ())))
        return CatchUpRound(instant(self._marks.begin_of(channel)), MOST_AT_ONCE, threads=threads)

    async def _fill(self, channel: str, round_: CatchUpRound) -> None:
        # Newest first, back to the first page that begins before the mark: it also shows which older threads moved.
        # And further back, if that takes fewer calls than to ask for each thread that is older still.
        async with aclosing(self._pages("conversations.history", "messages", channel=channel)) as pages:
            async for page in pages:
                round_.add(await self._parsed(page, channel, round_.since))
                is_after = [round_.note(message) for message in page]
                if not (all(is_after) or round_.goes_back()):
                    break
        for root in list(round_.threads):
            await self._read_thread(channel, root, round_)

    async def _read_thread(self, channel: str, root: str, round_: CatchUpRound) -> None:
        oldest = f"{max(round_.since, Decimal(0)):.6f}"
        try:
            async for page in self._pages(
                "conversations.replies", "messages", channel=channel, ts=root, oldest=oldest
            ):
                round_.add(await self._parsed(page, channel, round_.since))
        except SlackRefused as refused:
            if refused.kind != "gone":
                raise
            log.info("catch_up.gone: a thread in %s is gone: %s", channel, refused)

    async def _parsed(self, page: Sequence[Shape], channel: str, since: Decimal) -> list[Incoming]:
        """Return what a page says to the bot after *since*, with the names that it leaves out."""
        read = partial(parse_message, channel=channel, me=self._me, direct=is_direct(channel))
        missed = [one for one in page if instant(stamp(one, "ts") or "0") > since and read(one)]
        await self._lookups.explain(missed, NAMED_WITHIN_S)
        parsed = (read(message, known=self._lookups.known) for message in missed)
        return [incoming for incoming in parsed if incoming]

    async def _pages(
        self, method: str, key: str, *, channel: str = "", **arguments: JsonValue
    ) -> AsyncGenerator[Sequence[Shape], None]:
        """Yield the pages of a listing. Raises `PostFailed`."""
        for _ in range(MOST_PAGES):
            call = partial(self._web.call, method, urgent=False, channel=channel, limit=PAGE, **arguments)
            answer = await retry(call, PAUSES_S, _log_retry)
            yield parts(answer, key)
            cursor = string(part(answer, "response_metadata"), "next_cursor")
            if cursor in ("", arguments.get("cursor")):
                return
            arguments["cursor"] = cursor
        log.error(
            "catch_up.too_long: %s of %s has more than %d pages: the rest is not read",
            method,
            channel,
            MOST_PAGES,
        )
