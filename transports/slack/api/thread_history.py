"""Reading the history of a thread: all that is new in it, or its newest part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import anyio

from threads.errors import TransportUnavailable
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import Shape, count, instant, part, parts, stamp, string
from transports.slack.api.web_api import WebApi

REPLIES = "conversations.replies"

PAGE, MOST_PAGES = 200, 20
"""Messages per page, and pages of one look-up."""

ENOUGH, MOST_OF_A_TRY = 50, 1_000
"""Messages that a look for the newest ones ends with, and the most that Slack gives for a try."""

GUESSES, MOST_TRIES, TRIED_WITHIN_S = 3, 8, 5.0
"""Calls of such a look after the first one, how many of them guess a time, and the seconds for all of them."""

GONE = ("thread_not_found", "message_not_found")
TICK = Decimal("0.000001")


async def read(web: WebApi, channel: str, root: str, since: str, *, urgent: bool = True) -> list[Shape]:
    """Return the messages of a thread, or with a blank root of a channel, after *since*; none if it is gone."""
    method = REPLIES if root else "conversations.history"
    messages: list[Shape] = []
    cursor = ""
    for _ in range(MOST_PAGES):
        try:
            answer = await web.call(
                method,
                channel=channel,
                urgent=urgent,
                ts=root or None,
                oldest=since or None,
                cursor=cursor or None,
                limit=PAGE,
                include_all_metadata=True,
            )
        except SlackRefused as refused:
            if refused.error in GONE:
                return []
            raise
        messages += parts(answer, "messages")
        before, cursor = cursor, string(part(answer, "response_metadata"), "next_cursor")
        if cursor in ("", before) or not (root or since):  # a channel's history begins with its newest page
            return messages
    raise TransportUnavailable(f"{method}: too many messages to look through")


@dataclass(frozen=True, slots=True)
class Section:
    """The ``root`` of a thread, if it was asked for, and ``replies`` in order.

    ``left_out`` counts the replies between root and ``replies``, as far as is known.
    """

    root: Sequence[Shape] = ()
    replies: Sequence[Shape] = ()
    left_out: int = 0


async def newest(web: WebApi, channel: str, root: str, after: str, before: str) -> Section:
    """Return the newest replies of a thread between two times, which may be blank. Raises `PostFailed`.

    Slack reads a thread from its beginning, so a long one is asked for from a moment on that leaves a part of a page.
    """
    try:
        roots, first, more = await _page(web, channel, root, after, before, PAGE)
    except SlackRefused as refused:
        if refused.error in GONE:
            return Section()
        raise
    total = max((count(one, "reply_count") for one in roots), default=0)
    shown: Sequence[Shape] = first
    if more and first:
        end = before or next(filter(None, (stamp(one, "latest_reply") for one in roots)), _last(first))
        search = _Search(first, instant(end), max(1, total - len(first)))
        with anyio.move_on_after(TRIED_WITHIN_S):
            await search.run(lambda since: _page(web, channel, root, f"{since:.6f}", before, MOST_OF_A_TRY))
        shown = (search.ended or search.seen)[-PAGE:]
    left_out = sum(one not in shown for one in first) if after else total - len(shown) if more else 0
    return Section(() if after else roots, shown, max(0, left_out))


@dataclass(slots=True)
class _Search:
    """A search for the last of ``remaining`` replies between those ``seen`` and the time ``end``.

    It guesses a time, as if they were evenly spread, and corrects it. Then it reads on from what was seen: a thread
    may have been quiet for long. ``ended`` are replies that reach up to the end.
    """

    seen: Sequence[Shape]
    end: Decimal
    remaining: int
    ended: Sequence[Shape] = ()

    async def run(
        self, page: Callable[[Decimal], Awaitable[tuple[Sequence[Shape], Sequence[Shape], bool]]]
    ) -> None:
        first, low, late = self.seen, instant(_last(self.seen)), self.end
        since = late - (late - low) * min(Decimal(1), Decimal(MOST_OF_A_TRY // 4) / self.remaining)
        for tried in range(MOST_TRIES):
            since = low if tried >= GUESSES or since - low < TICK else since
            _, found, more = await page(since)
            if more and found:
                self.seen, low = found, instant(_last(found))
                since = (low + late) / 2
            elif since == low:
                self.ended = [*self.seen, *found]
                return
            else:
                self.ended, late = found, since
                if len(found) >= ENOUGH:
                    return
                wider = self.end - 3 * (self.end - since)
                since = max(low, wider) if self.seen is first else (low + late) / 2


async def _page(
    web: WebApi, channel: str, root: str, since: str, before: str, most: int
) -> tuple[Sequence[Shape], Sequence[Shape], bool]:
    """Return the root, the first replies between two times, and whether there are more."""
    answer = await web.call(
        REPLIES, channel=channel, ts=root, oldest=since or None, latest=before or None, limit=most
    )
    messages = [one for one in parts(answer, "messages") if stamp(one, "ts")]
    roots = [one for one in messages if stamp(one, "ts") == root]
    replies = [one for one in messages if stamp(one, "ts") != root]
    return roots, replies, string(part(answer, "response_metadata"), "next_cursor") != ""


def _last(messages: Sequence[Shape]) -> str:
    return stamp(messages[-1], "ts")
