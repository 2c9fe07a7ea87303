"""Reading the history of a thread, page by page."""

from __future__ import annotations

from threads.errors import TransportUnavailable
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import Shape, part, parts, string
from transports.slack.api.web_api import Web

PAGE, MOST_PAGES = 200, 20
"""Messages per page, and pages of one look-up."""


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
            if refused.error in ("thread_not_found", "message_not_found"):
                return []
            raise
        messages += parts(answer, "messages")
        before, cursor = cursor, string(part(answer, "response_metadata"), "next_cursor")
        if cursor in ("", before) or not (root or since):  # a channel's history begins with its newest page
            return messages
    raise TransportUnavailable(f"{method}: too many messages to look through")
