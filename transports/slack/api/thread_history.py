"""Reading the history of a thread: all that is new in it, or its newest part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from threads.errors import TransportUnavailable
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import Shape, count, instant, part, parts, stamp, string
from transports.slack.api.web_api import Web

PAGE, MOST_PAGES = 200, 20
"""Messages per page, and pages of one look-up."""

ENOUGH = 50
"""Messages that a look for the newest ones ends with."""

MOST_TRIES = 6
"""Calls of such a look after the first one."""

GONE = ("thread_not_found", "message_not_found")
TICK = Decimal("0.000001")


async def read(web: Web, channel: str, root: str, since: str, *, urgent: bool = True) -> list[Shape]:
    """Return the messages of a thread, or with a blank root of a channel, after *since*; none if it is gone."""
    method = "conversations.replies" if root else "conversations.history"
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


async def newest(web: Web, channel: str, root: str, after: str, before: str) -> Section:
    """Return the newest replies of a thread between two times, which may be blank. Raises `PostFailed`.

    Slack reads a thread from its beginning. So a long one is asked for from a moment on that leaves a part of a page:
    the first guess takes the replies for evenly spread, the next ones halve what is left.
    """
    try:
        roots, first, more = await _page(web, channel, root, after, before)
    except SlackRefused as refused:
        if refused.error in GONE:
            return Section()
        raise
    if not (more and first):
        return Section(() if after else roots, first)
    total = max((count(one, "reply_count") for one in roots), default=0)
    end = instant(before or next(filter(None, (stamp(one, "latest_reply") for one in roots)), _last(first)))
    low, late, seen, tail = instant(_last(first)), end, first, first
    since = end - (end - low) * min(Decimal(1), Decimal(PAGE // 2) / max(1, total - len(first)))
    for _ in range(MOST_TRIES):
        since = low if since - low < TICK else since
        _, found, more = await _page(web, channel, root, f"{since:.6f}", before)
        if more and found:
            seen = tail = found
            low = instant(_last(found))
            since = (low + late) / 2
        elif since == low:
            tail = [*seen, *found]
            break
        elif len(found) >= ENOUGH:
            tail = found
            break
        else:
            tail, late = found, since
            since = max(low, end - 3 * (end - since)) if seen is first else (low + late) / 2
    left_out = sum(one not in tail for one in first) if after else max(0, total - len(tail))
    return Section(() if after else roots, tail, left_out)


async def _page(
    web: Web, channel: str, root: str, since: str, before: str
) -> tuple[Sequence[Shape], Sequence[Shape], bool]:
    """Return the root, the first replies between two times, and whether there are more."""
    answer = await web.call(
        "conversations.replies",
        channel=channel,
        ts=root,
        oldest=since or None,
        latest=before or None,
        limit=PAGE,
    )
    messages = [one for one in parts(answer, "messages") if stamp(one, "ts")]
    roots = [one for one in messages if stamp(one, "ts") == root]
    replies = [one for one in messages if stamp(one, "ts") != root]
    return roots, replies, string(part(answer, "response_metadata"), "next_cursor") != ""


def _last(messages: Sequence[Shape]) -> str:
    return stamp(messages[-1], "ts")
