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
from transports.discord.markdown.buttons import FEEDBACK, stop_mark
from transports.discord.post.message_pages import MessagePage
from transports.discord.post.nonces import nonce_of
from transports.discord.post.thread_opening import Destination

MOST_PAGES = 10
"""Calls that one look-up may make."""

SECOND_NONCE = 100
"""Added to the number of a part whose nonce belongs to a deleted message: Discord could answer with that one."""


@dataclass(frozen=True, slots=True)
class OwnMessage:
    """A message of ours. ``reply_to`` is the id of the message it replies to, ``buttons`` are custom ids."""

    id: str
    content: str
    nonce: str = ""
    reply_to: str = ""
    buttons: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def draft_mark(self) -> str:
        """Return the nonce of the post that this is an unfinished part of, "" for a finished message."""
        return stop_mark(self.buttons)

    def shows(self, page: MessagePage) -> bool:
        """Return whether it shows that page, finished.

        White space is ignored: Discord trims. So are thumbs, which a restart may have turned on or off.
        """
        if page.file:
            return page.file in self.files
        same_words = self.content.split() == page.content.split()
        return same_words and _without_thumbs(self.buttons) == _without_thumbs(page.custom_ids)


@dataclass(slots=True)
class PostState:
    """What is known of one post: its pages, and the ids of the parts that are ``posted`` at ``destination``.

    ``candidates`` are the messages of the last look-up that may belong to it, in order. ``to_overwrite`` are the ids
    of messages that have to be written over. ``as_messages``: it goes out in messages, however long it is.
    """

    key: str
    pages: Sequence[MessagePage] = ()
    posted: dict[int, str] = field(default_factory=dict)
    destination: Destination | None = None
    candidates: Sequence[OwnMessage] = ()
    to_overwrite: Sequence[str] = ()
    as_messages: bool = False

    @property
    def first(self) -> str:
        return self.posted[self.pages[0].part]

    @property
    def is_complete(self) -> bool:
        return bool(self.pages) and all(page.part in self.posted for page in self.pages)

    @property
    def last(self) -> int:
        """Return the latest id that is out, as a number."""
        return max(map(number, self.posted.values()), default=0)

    def set_pages(self, pages: Sequence[MessagePage]) -> None:
        """Begin to show these pages; those that the last look-up found are out."""
        self.pages = pages
        self.match_pages()

    def match_pages(self) -> None:
        for page in self.pages:
            if page.part not in self.posted and (found := self._match(page)):
                self.posted[page.part] = found.id

    def unfinished(self, live: Collection[str] = ()) -> list[str]:
        """Return the ids of messages, except the *live* ones, that a kill or a lost answer left unfinished.

        Once the pages are known, a message with a part's nonce that shows no part is unfinished too.
        """
        unfinished = (m.id for m in self.candidates if m.draft_mark or (self.pages and m.nonce))
        taken = {*self.posted.values(), *live}
        return [message for message in (*self.to_overwrite, *unfinished) if message not in taken]

    def _match(self, page: MessagePage) -> OwnMessage | None:
        named = nonces_of(self.key, page.part)
        fitting = [m for m in self.candidates if m.shows(page) and m.id not in self.posted.values()]
        by_name = [m for m in fitting if m.nonce in named]
        by_words = [m for m in fitting if page.file or number(m.id) > self.last]
        return next(iter((*by_name, *by_words)), None)


def _without_thumbs(custom_ids: Iterable[str]) -> list[str]:
    return [custom_id for custom_id in custom_ids if custom_id not in FEEDBACK]


def nonces_of(key: str, part: int) -> tuple[str, str]:
    """Return the nonces that a part may have been sent with."""
    return nonce_of(key, part), nonce_of(key, part + SECOND_NONCE)


def own_message(message: discord.Message) -> OwnMessage:
    reference = message.reference.message_id if message.reference else None
    return OwnMessage(
        id=str(message.id),
        content=message.content,
        nonce=str(message.nonce or ""),
        reply_to=str(reference or ""),
        buttons=tuple(_custom_ids(message)),
        files=tuple(attachment.filename for attachment in message.attachments),
    )


def _custom_ids(message: discord.Message) -> Iterable[str]:
    for row in message.components:
        for item in row.children if isinstance(row, discord.ActionRow) else ():
            if isinstance(item, discord.Button) and item.custom_id:
                yield item.custom_id


async def read(rest: Rest, destination: Destination, key: str, question: str) -> list[OwnMessage]:
    """Return our messages after the question that may belong to the post *key*. Raises `PostFailed`.

    Without a question only the newest messages are looked at, and only a name tells that one belongs to the post.
    """
    own, after = [], question
    for _ in range(MOST_PAGES if question else 1):
        page = await rest.history(destination.channel, after=after)
        own += [own_message(message) for message in page if str(message.author.id) == rest.me.id]
        if len(page) < MAX_PAGE:
            break
        after = str(page[-1].id)
    mark = nonce_of(key)
    parts = {name for part in range(SECOND_NONCE) for name in nonces_of(key, part)}
    return [
        m for m in own if m.draft_mark == mark or m.nonce in parts or _may_belong(m, destination, question)
    ]


def _may_belong(message: OwnMessage, destination: Destination, question: str) -> bool:
    """Return whether a message without a name can be an answer: in place all refer to the question, else the first.

    The first does not if the question is what the thread began with, or is gone.
    """
    if message.nonce or message.draft_mark or not question:
        return False
    return message.reply_to == question or not (message.reply_to or destination.reply_to)
