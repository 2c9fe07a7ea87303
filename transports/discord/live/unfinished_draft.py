"""What becomes of a live answer whose final text does not come: it stays as far as it says something."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio

from threads.errors import PostFailed
from threads.model import Outcome
from transports.discord.api.rest import Rest
from transports.discord.live.pacing import Pace
from transports.discord.markdown.render import MAX_CONTENT, note, utf16_size
from transports.discord.post.rewrite import DraftMessage, remove
from transports.shared.delivery import rewrite
from transports.shared.retry import retry

log = logging.getLogger(__name__)

WITHIN_S = 120.0

STOPPED, UNFINISHED = note("stopped"), note("not finished")


async def leave(
    rest: Rest, pace: Pace, messages: Sequence[tuple[DraftMessage, str]], outcome: Outcome
) -> None:
    """Tidy up the messages of a draft, each with the text that it is to keep; the last one says how it ended.

    Never raises `PostFailed`; what Discord does not allow is left as it is.
    """
    ending = f"\n{STOPPED if outcome == 'stopped' else UNFINISHED}"
    with anyio.move_on_after(WITHIN_S) as scope:
        for message, text in reversed(messages):
            if text:
                fits = utf16_size(text + ending) <= MAX_CONTENT
                await _keep(rest, pace, message, text + ending if fits else text)
                ending = ""
            else:
                await remove(rest, message.channel, message.id)
    if scope.cancelled_caught:
        log.info("live.left: as it was")


async def _keep(rest: Rest, pace: Pace, message: DraftMessage, content: str) -> None:
    """Take the button away: so a message is meant to stay."""

    async def edit() -> None:
        async with pace.turn_in(message.channel):
            await rest.edit(message.channel, message.id, content, urgent=False)

    try:
        await retry(edit, rewrite.PAUSES_S)
    except PostFailed as error:
        log.info("live.left: as it was: %s", error)
