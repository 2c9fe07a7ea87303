"""Writing over a message of ours in Discord, see `transports.shared.delivery.rewrite`."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from threads.errors import PostFailed
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.post.message_pages import MessagePage
from transports.shared.delivery import rewrite

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DraftMessage:
    """A live message of ours that shows the answer so far; ``shown`` is its text as far as it is certain."""

    channel: str
    id: str
    shown: str = ""


async def take_over(rest: Rest, channel: str, message: str, page: MessagePage) -> bool:
    """Write a page over a message. Returns False if that is impossible and the page needs a message of its own.

    The message may be gone, or older than Discord lets be edited often (30046).
    """

    async def edit() -> bool:
        try:
            await rest.edit(channel, message, page.content, buttons=page.buttons)
        except DiscordRefused as refused:
            if refused.kind == "token":
                raise
            log.info("live.not_taken: a message does not take its text: %s", refused)
            return False
        return True

    return await rewrite.take_over(edit, partial(remove, rest, channel, message))


async def disarm(rest: Rest, channel: str, message: str) -> None:
    """Take the buttons off a message of ours. Never raises `PostFailed`."""
    with suppress(PostFailed):
        await rest.edit(channel, message, urgent=False)


async def remove(rest: Rest, channel: str, message: str) -> bool:
    """Delete a message, and return whether it is gone; failing that, leave a dash."""
    delete = partial(rest.delete, channel, message)
    return await rewrite.remove(delete, partial(rest.edit, channel, message, "-", urgent=False))
