"""What a channel's history says about our posts: which parts are out, which were left unfinished.

Discord shows the nonce of a message for some minutes. An unfinished draft is recognized by its Stop button. Any other
message counts if it is ours, later than the question, a reply to it, and word for word the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import discord

from transports.discord.api.rest import MAX_PAGE, Rest
from transports.discord.api.snowflake import number
from transports.discord.markdown.buttons import stop_mark
from transports.discord.post.message_pages import Page
from transports.discord.post.nonces import nonce_of
from transports.discord.post.thread_opening import Destination

MOST_PAGES = 10
"""Calls that one look-up may make."""

ANEW = 100
"""Added to the number of a part whose nonce belongs to a deleted message: Discord could answer with that one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A message of ours. ``refers`` is the id of the message it replies to, ``buttons`` are custom ids."""

    id: str
    content: str
    nonce: str = ""
    refers: str = ""
    buttons: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """Return the nonce of the post that this is an unfinished part of, "" for a finished message."""
        return stop_mark(self.buttons)

    def shows(self, page: Page) -> bool:
        """Return whether it shows that page, finished. White space is ignored: Discord trims."""
        if page.file:
            return page.file in self.files
        return self.content.split() == page.content.split() and self.buttons == page.custom_ids


@dataclass(slots=True)
class Sent:
    """What is known of one post: its pages, and the ids of the parts that are ``out`` at ``destination``.

    ``seen`` are the messages of the last look-up that may belong to it, in order; ``over`` are ids of messages that
    have to be written over. ``spelled``: it goes out in messages, however long it is.
    """

    key: str
    pages: Sequence[Page] = ()
    out: dict[int, str] = field(default_factory=dict)
    destination: Destination | None = None
    seen: Sequence[Seen] = ()
    over: Sequence[str] = ()
    spelled: bool = False

    @property
    def first(self) -> str:
        return self.out[self.pages[0].part]

    @property
    def whole(self) -> bool:
        return bool(self.pages) and all(page.part in self.out for page in self.pages)

    @property
    def last(self) -> int:
        """Return the latest id that is out, as a number."""
        return max(map(number, self.out.values()), default=0)

    def begin(self, pages: Sequence[Page]) -> None:
        """Begin to show these pages; those that the last look-up found are out."""
        self.pages = pages
        self.adopt()

    def adopt(self) -> None:
        for page in self.pages:
            if page.part not in self.out and (found := self._found(page)):
                self.out[page.part] = found.id

    def left(self, live: Collection[str] = ()) -> list[str]:
        """Return the ids of messages, except the *live* ones, that a kill or a lost answer left unfinished.

        Once the pages are known, a message with a part's nonce that shows no part is unfinished too.
        """
        unfinished = (m.id for m in self.seen if m.mark or (self.pages and m.nonce))
        taken = {*self.out.values(), *live}
        return [message for message in (*self.over, *unfinished) if message not in taken]

    def _found(self, page: Page) -> Seen | None:
        named = names(self.key, page.part)
        fitting = [m for m in self.seen if m.shows(page) and m.id not in self.out.values()]
        by_name = [m for m in fitting if m.nonce in named]
        by_words = [m for m in fitting if page.file or number(m.id) > self.last]
        return next(iter((*by_name, *by_words)), None)


def names(key: str, part: int) -> tuple[str, str]:
    """Return the nonces that a part may have been sent with."""
    return nonce_of(key, part), nonce_of(key, part + ANEW)


def seen_of(message: discord.Message) -> Seen:
    reference = message.reference.message_id if message.reference else None
    return Seen(
        id=str(message.id),
        content=message.content,
        nonce=str(message.nonce or ""),
        refers=str(reference or ""),
        buttons=tuple(_custom_ids(message)),
        files=tuple(attachment.filename for attachment in message.attachments),
    )


def _custom_ids(message: discord.Message) -> Iterable[str]:
    for row in message.components:
        for item in row.children if isinstance(row, discord.ActionRow) else ():
            if isinstance(item, discord.Button) and item.custom_id:
                yield item.custom_id


async def read(rest: Rest, destination: Destination, key: str, question: str) -> list[Seen]:
    """Return our messages after the question that may belong to the post *key*. Raises `PostFailed`.

    Without a question only the newest messages are looked at, and only a name tells that one belongs to the post.
    """
    said, after = [], question
    for _ in range(MOST_PAGES if question else 1):
        page = await rest.history(destination.channel, after=after)
        said += [seen_of(message) for message in page if str(message.author.id) == rest.me.id]
        if len(page) < MAX_PAGE:
            break
        after = str(page[-1].id)
    mark = nonce_of(key)
    parts = {name for part in range(ANEW) for name in names(key, part)}
    return [m for m in said if m.mark == mark or m.nonce in parts or _may_be(m, destination, question)]


def _may_be(message: Seen, destination: Destination, question: str) -> bool:
    """Return whether a message without a name can be an answer: in place all refer to the question, else the first.

    The first does not if the question is what the thread began with, or is gone.
    """
    if message.nonce or message.mark or not question:
        return False
    return message.refers == question or not (message.refers or destination.reply_to)
