"""Closing a draft whose final text does not come: messages with text stay, the others are deleted.

If what they answer was deleted, all of them are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed
from threads.model import Outcome, ThreadId
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.web_api import WebApi
from transports.slack.live.native_stream import STOP, LivePost
from transports.slack.markdown.blocks import markdown_block
from transports.slack.markdown.open_fences import Fences
from transports.slack.markdown.split import plain
from transports.slack.post.post_tags import Tag
from transports.slack.post.rewrite import remove

log = logging.getLogger(__name__)

STOPPED = "\n\n_(stopped)_"
KEPT = Tag("kept").metadata()
"""Tells a later sweep for unfinished answers that this one is meant to stay."""

WITHIN_S = 120.0


async def close_messages(web: WebApi, thread: ThreadId, posts: Sequence[LivePost], outcome: Outcome) -> None:
    """Close the messages of a draft. Never raises; a message that Slack does not let go of stays as it is."""
    with_text = [live for live in posts if live.text.strip() and not live.withdrawn]
    remaining, mark = with_text if outcome != "withdrawn" else [], STOPPED if outcome == "stopped" else ""
    with anyio.move_on_after(WITHIN_S) as scope:
        for live in posts:
            if live not in remaining:
                await remove(web, thread.channel, live.ts)
                continue
            try:
                await _keep(web, thread.channel, live, mark if live is remaining[-1] else "")
            except PostFailed as error:
                log.info("live.left: as it was: %s", error, extra={"thread_id": str(thread)})
    if scope.cancelled_caught:
        log.info("live.left: as it was", extra={"thread_id": str(thread)})


async def _keep(web: WebApi, channel: str, live: LivePost, mark: str) -> None:
    fences = Fences()
    fences.feed(live.text)
    mark = fences.seam[0] + mark
    if live.open:
        end: dict[str, JsonValue] = (
            {"markdown_text": mark or None, "metadata": KEPT} if live.confirmed else {}
        )
        with suppress(SlackRefused):  # Slack has ended it: then it can be written over
            await web.call(STOP, channel=channel, urgent=False, ts=live.ts, **end)
            if live.confirmed:
                return
    text = live.text + mark
    content: dict[str, JsonValue] = {"text": plain(text), "blocks": [markdown_block(text)]}
    more: dict[str, JsonValue] = {"parse": "none", "link_names": False, "metadata": KEPT}
    await web.call("chat.update", channel=channel, urgent=False, ts=live.ts, **content, **more)
