"""Sends the pages of one post, each into a message that is there or into a new one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from threads.model import Outgoing, ThreadId, WallClock
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.api.snowflake import instant, is_snowflake, number
from transports.discord.api.values import Upload
from transports.discord.post.message_pages import MessagePage
from transports.discord.post.nonces import nonce_of
from transports.discord.post.post_lookup import SECOND_NONCE, OwnMessage, PostState, own_message
from transports.discord.post.rewrite import take_over
from transports.discord.post.thread_opening import Destination

log = logging.getLogger(__name__)

OLD = timedelta(minutes=50)
"""After an hour Discord allows a few edits, and then makes an edit wait for long (30046)."""

NO_MESSAGE = 10_008
"""The refusal of a send whose nonce belongs to a deleted message."""


@dataclass(frozen=True, slots=True)
class PageSender:
    """``live`` are the ids of draft messages; the pages are written over them."""

    rest: Rest
    now: WallClock
    outgoing: Outgoing
    destination: Destination
    live: Sequence[str]
    state: PostState

    async def show(self, page: MessagePage, upload: Upload | None = None) -> None:
        """Show a page, once. Raises `PostFailed`."""
        if page.part in self.state.posted:
            return
        to_overwrite = [] if upload else self._overwritable()
        for message in to_overwrite:
            if await take_over(self.rest, self.destination.channel, message, page):
                self.state.posted[page.part] = message
                return
        found = None if to_overwrite else await self._sent_as(page, upload)
        self.state.posted[page.part] = (found or await self._send(page, page.part + SECOND_NONCE, upload)).id

    def _overwritable(self) -> list[str]:
        """Return the messages that can be written over; one above an earlier part would break the order."""
        unfinished = (*self.live, *self.state.unfinished(self.live))
        young = self.now() - OLD
        return [id_ for id_ in unfinished if number(id_) > self.state.last and instant(id_) > young]

    async def _sent_as(self, page: MessagePage, upload: Upload | None) -> OwnMessage | None:
        """Send the page under its own nonce and return the message; None if Discord answers with another message.

        That message had the nonce before, and cannot show the page or was deleted.
        """
        try:
            found = await self._send(page, page.part, upload)
        except DiscordRefused as refused:
            if refused.number != NO_MESSAGE:
                raise
            return None
        if upload or found.shows(page):
            return found
        above = number(found.id) <= self.state.last
        return (
            None
            if above or not await take_over(self.rest, self.destination.channel, found.id, page)
            else found
        )

    async def _send(self, page: MessagePage, name: int, upload: Upload | None) -> OwnMessage:
        send = partial(
            self.rest.send,
            self.destination.channel,
            page.content,
            nonce=nonce_of(self.outgoing.key, name),
            upload=upload,
        )
        reply_to = reply_target(self.destination, self.outgoing.thread, self.outgoing.reply_to, page.part)
        try:
            found = await send(reply_to=reply_to, buttons=page.buttons)
        except DiscordRefused as refused:
            if refused.kind != "shape" or not (reply_to or page.buttons):
                raise
            log.warning("post.bare: without its reference and its buttons: %s", refused)
            found = await send()
        return own_message(found)


def reply_target(destination: Destination, thread: ThreadId, question: str, part: int) -> str:
    """Return the id of the message that a part replies to, "" for none; *question* is the id of what it answers.

    In place each part is a reply, else only the first, unless the question began the thread.
    """
    question = question if is_snowflake(question) else ""
    if destination.reply_to:
        return question or destination.reply_to
    return question if part == 0 and question != thread.root else ""
