"""One post on its way out: its pages, one after another, each in a message that is there or in one of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from threads.model import Outgoing, ThreadId
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.api.snowflake import instant, is_snowflake, number
from transports.discord.api.values import Upload
from transports.discord.post.message_pages import Page
from transports.discord.post.nonces import nonce_of
from transports.discord.post.post_lookup import ANEW, Seen, Sent, seen_of
from transports.discord.post.rewrite import take_over
from transports.discord.post.thread_opening import Spot

log = logging.getLogger(__name__)

OLD = timedelta(minutes=50)
"""After an hour Discord allows a few edits, and then makes an edit wait for long (30046)."""

NO_MESSAGE = 10_008
"""What a send under the name of a message that was deleted may be refused with."""


@dataclass(frozen=True, slots=True)
class PageSender:
    """``live`` are the ids of messages there that show the answer so far; the pages are written over them."""

    rest: Rest
    now: Callable[[], datetime]
    outgoing: Outgoing
    spot: Spot
    live: Sequence[str]
    sent: Sent

    async def show(self, page: Page, upload: Upload | None = None) -> None:
        """Bring a page out, once. Raises `PostFailed`."""
        if page.part in self.sent.out:
            return
        over = [] if upload else self._over()
        for message in over:
            if await take_over(self.rest, self.spot.channel, message, page):
                self.sent.out[page.part] = message
                return
        said = None if over else await self._sent_as(page, upload)
        self.sent.out[page.part] = (said or await self._send(page, page.part + ANEW, upload)).id

    def _over(self) -> list[str]:
        """Return what can be written over; what stands above an earlier part would break the order."""
        left = (*self.live, *self.sent.left(self.live))
        young = self.now() - OLD
        return [message for message in left if number(message) > self.sent.last and instant(message) > young]

    async def _sent_as(self, page: Page, upload: Upload | None) -> Seen | None:
        """Send the page under its own name and return the message; None if Discord answers with another.

        That has the name from before: it showed less, and cannot show the page, or it was deleted.
        """
        try:
            said = await self._send(page, page.part, upload)
        except DiscordRefused as refused:
            if refused.number != NO_MESSAGE:
                raise
            return None
        if upload or said.shows(page):
            return said
        above = number(said.id) <= self.sent.last
        return None if above or not await take_over(self.rest, self.spot.channel, said.id, page) else said

    async def _send(self, page: Page, name: int, upload: Upload | None) -> Seen:
        send = partial(
            self.rest.send,
            self.spot.channel,
            page.content,
            nonce=nonce_of(self.outgoing.key, name),
            upload=upload,
        )
        reply_to = refers(self.spot, self.outgoing.thread, self.outgoing.reply_to, page.part)
        try:
            said = await send(reply_to=reply_to, buttons=page.buttons)
        except DiscordRefused as refused:
            if refused.kind != "shape" or not (reply_to or page.buttons):
                raise
            log.warning("post.bare: without its reference and its buttons: %s", refused)
            said = await send()
        return seen_of(said)


def refers(spot: Spot, thread: ThreadId, question: str, part: int) -> str:
    """Return the message that a part replies to, "" for none; *question* is the id of what it answers.

    In place each part does, else the first, unless the question is what the thread began with.
    """
    question = question if is_snowflake(question) else ""
    if spot.reply_to:
        return question or spot.reply_to
    return question if part == 0 and question != thread.root else ""
