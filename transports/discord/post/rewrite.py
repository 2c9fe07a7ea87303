"""What is written over a message of ours that is there: live answers are finished, leftovers are taken away.

All of it may be done again at will, so a lost answer costs nothing.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

import anyio

from threads.errors import PostFailed, TransportUnavailable
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.post.message_pages import Page

log = logging.getLogger(__name__)

PAUSES_S = (1.0, 2.0)
"""Waits before a deletion is tried again: what is not deleted would stand beside the answer for ever."""


@dataclass(frozen=True, slots=True)
class DraftMessage:
    """A live message of ours that shows the answer so far; ``shown`` is its text as far as it is certain."""

    channel: str
    id: str
    shown: str = ""


async def take_over(rest: Rest, channel: str, message: str, page: Page) -> bool:
    """Make a message the page; False when it cannot be, and the page needs a message of its own.

    So it is when the message is gone, older than Discord lets be edited often (30046), or cannot be written over
    just now: to post may work all the same.
    """
    for pause in (PAUSES_S[0], None):
        try:
            await rest.edit(channel, message, page.content, buttons=page.buttons)
        except DiscordRefused as refused:
            if refused.kind == "token":
                raise
            log.info("live.not_taken: a message does not take its text: %s", refused)
            return False
        except TransportUnavailable as error:
            if pause is not None:
                await anyio.sleep(pause)
                continue
            # What was not answered may be done all the same: it has to be gone before another takes its place.
            log.warning("live.replaced: a message cannot be written over, and is deleted: %s", error)
            if not await remove(rest, channel, message):
                raise
            return False
        return True
    raise AssertionError  # the last try returned or raised


async def disarm(rest: Rest, channel: str, message: str) -> None:
    """Take the buttons off a message of ours; may be dropped."""
    with suppress(PostFailed):
        await rest.edit(channel, message, urgent=False)


async def remove(rest: Rest, channel: str, message: str) -> bool:
    """Delete a message, and say whether it is gone; failing that, leave a dash. Never raises `PostFailed`."""
    for pause in (*PAUSES_S, None):
        try:
            await rest.delete(channel, message)
        except PostFailed as error:
            if isinstance(error, DiscordRefused) and error.kind == "gone":
                return True
            if error.retryable and pause is not None:
                await anyio.sleep(error.retry_after or pause)
                continue
            log.warning("live.not_deleted: an unfinished message: %s", error)
        else:
            return True
        break
    with suppress(PostFailed):
        await rest.edit(channel, message, "-", urgent=False)
    return False
