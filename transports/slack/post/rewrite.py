"""Writing over a message of ours in Slack, see `transports.shared.delivery.rewrite`."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pydantic import JsonValue

from transports.shared.delivery import rewrite
from transports.slack.api.api_errors import SlackRefused, refused_for_good
from transports.slack.api.web_api import WebApi
from transports.slack.markdown.tables import tables_in
from transports.slack.post.message_pages import MessagePage

log = logging.getLogger(__name__)

MAX_UPDATE = 4_000
"""Characters of text that ``chat.update`` takes."""

CONFLICT = "streaming_state_conflict"


@dataclass(frozen=True, slots=True)
class DraftMessage:
    """A live message of ours that shows the answer so far: a stream, still ``open`` or ended.

    ``id`` is its ts, ``shown`` its text as far as that is certain.
    """

    id: str
    open: bool
    shown: str


async def take_over(web: WebApi, channel: str, draft: DraftMessage, page: MessagePage) -> bool:
    """Make a live message the page; return False if it cannot be, and the page needs a message of its own."""
    return await rewrite.take_over(
        partial(_take_over, web, channel, draft, page), partial(remove, web, channel, draft.id)
    )


async def _take_over(web: WebApi, channel: str, draft: DraftMessage, page: MessagePage) -> bool:
    if draft.open and await _stop(web, channel, draft, page):
        return True
    forms: list[tuple[str, list[JsonValue] | None]] = [(page.plain, [*page.blocks])]
    if len(page.words) <= MAX_UPDATE:
        forms.append((page.words, None))
    for text, blocks in forms:
        try:
            await _update(web, channel, draft.id, text, blocks, metadata=page.tag.metadata())
        except SlackRefused as refused:
            if refused_for_good(refused):
                raise
            log.warning("live.not_taken: a message does not take its text: %s", refused)
        else:
            return True
    return False


async def _update(
    web: WebApi, channel: str, ts: str, text: str, blocks: list[JsonValue] | None, **more: JsonValue
) -> None:
    """Write a message over. The defaults of ``chat.update`` would make mentions and links of plain words."""
    more |= {"text": text, "blocks": blocks, "parse": "none", "link_names": False}
    await _call_when_stopped(web, "chat.update", channel, ts, **more)


async def _stop(web: WebApi, channel: str, draft: DraftMessage, page: MessagePage) -> bool:
    """End a stream; False when it does not show the page. It gets the page's tag only if it does."""
    rest = _rest(draft.shown, page.markdown)
    last: dict[str, JsonValue] = {}
    if rest is not None:
        last = {
            "markdown_text": rest or None,
            "metadata": page.tag.metadata(),
            "blocks": [*page.below] or None,
        }
    try:
        await web.call("chat.stopStream", channel=channel, urgent=True, ts=draft.id, **last)
    except SlackRefused as refused:
        if refused_for_good(refused):
            raise
        log.info("live.not_stopped: %s", refused)
        return False
    return rest is not None


def _rest(shown: str, markdown: str) -> str | None:
    """Return what a stream lacks of a page; None if it shows something else, or has a table: that needs a block."""
    if not shown or tables_in(markdown):
        return None
    if shown.strip() == markdown.strip():
        return ""
    return markdown[len(shown) :] if markdown.startswith(shown) else None


async def _call_when_stopped(web: WebApi, method: str, channel: str, ts: str, **arguments: JsonValue) -> None:
    """Call a method that Slack refuses during a stream; if it refuses, stop the stream and call again."""
    try:
        await web.call(method, channel=channel, urgent=True, ts=ts, **arguments)
    except SlackRefused as refused:
        if refused.error != CONFLICT:
            raise
        with suppress(SlackRefused):
            await web.call("chat.stopStream", channel=channel, ts=ts)
        await web.call(method, channel=channel, urgent=True, ts=ts, **arguments)


async def remove(web: WebApi, channel: str, ts: str, *, leave: str = "") -> bool:
    """Delete a message, and return whether it is gone; failing that, write *leave* over it."""
    return await rewrite.remove(
        partial(_delete, web, channel, ts), partial(_update, web, channel, ts, leave, None) if leave else None
    )


async def _delete(web: WebApi, channel: str, ts: str) -> None:
    try:
        await _call_when_stopped(web, "chat.delete", channel, ts)
    except SlackRefused as refused:
        if refused.error != "message_not_found":
            raise
