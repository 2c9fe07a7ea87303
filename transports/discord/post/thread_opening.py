"""Where a conversation is held. A thread is opened from its first message when its first sign or post is due.

    conversation                                        destination
    a direct message, a channel itself (blank root)     the channel
    a message that begins one (`note_question`)         a new thread; 160004 means that it is there already
    a thread that something was said in                 the thread
    an unknown one, as after a restart                  the thread; if there is none, as for one that begins
    no thread can be opened                             in place: in the channel, as replies to the message

A thread has the id of the message that it was opened from (docs.discord.com, "Threads"), so that is where it is,
whoever opened it. It is named once: Discord limits renames to two in ten minutes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import anyio
from cachetools import LRUCache

from threads.model import ThreadId
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.api.values import DIRECT
from transports.discord.markdown.render import utf16_size

log = logging.getLogger(__name__)

REMEMBERED = 5_000
"""Conversations whose place is known; for others Discord is asked again."""

MOST_ANSWERS = 20_000
"""Messages of the bot whose conversation is known; for others the replies are followed (`events.reply_chains`)."""

REFUSED_PAUSE_S = 600.0
"""Seconds without a new try after a channel refuses a thread: refused calls add up to a ban (10,000 in 10 min)."""

MAX_TITLE = 100
UNTITLED = "Conversation"
JOINER = "\u200d"
"""An invisible character that holds an emoji together."""

QUESTION_GONE = "The message I was to answer is not there any more."

_MENTION = re.compile(r"<(?:@[!&]?|#)\d{1,20}>")
_EMOJI = re.compile(r"<a?(:\w{1,40}:)\d{1,20}>")


@dataclass(frozen=True, slots=True)
class Destination:
    """Posts go to ``channel``; in place, each of them refers to the message ``reply_to``."""

    channel: str
    reply_to: str = ""


@dataclass(slots=True)
class _Conversation:
    destination: Destination | None = None
    title: str = ""
    opening: anyio.Lock = field(default_factory=anyio.Lock)


class Destinations:
    """``in_place`` are the ids of channels in which no thread is to be opened."""

    def __init__(self, rest: Rest, in_place: Collection[str] = ()) -> None:
        self._rest, self._in_place = rest, in_place
        self._conversations: LRUCache[ThreadId, _Conversation] = LRUCache(REMEMBERED)
        self._refusing: LRUCache[str, float] = LRUCache(REMEMBERED)
        self._roots: LRUCache[str, str] = LRUCache(MOST_ANSWERS)

    def note_question(self, thread: ThreadId, title: str) -> None:
        """Note that *thread* begins with a message said in its channel; *title* is what that says."""
        conversation = self._conversation(thread)
        conversation.title = conversation.title or title_of(title)

    def note_thread(self, thread: ThreadId) -> None:
        """Note that the thread is open: it has a message."""
        self._conversation(thread).destination = Destination(thread.root)

    def note_answers(self, root: str, answers: Iterable[str]) -> None:
        """Note that these messages of the bot, in place, belong to the conversation that began with *root*."""
        self._roots.update(dict.fromkeys(answers, root))

    def root_of(self, answer: str) -> str:
        """Return the root of the conversation in place that a message of the bot belongs to; "" if unknown."""
        return self._roots.get(answer, "")

    def known(self, thread: ThreadId) -> Destination | None:
        """Return the place of a conversation, if it is known without a call."""
        if thread.workspace == DIRECT or not thread.root:
            return Destination(thread.channel)
        conversation = self._conversations.get(thread)
        return conversation.destination if conversation else None

    async def open(self, thread: ThreadId) -> Destination:
        """Return where posts go, opening the thread if it is due. Raises `PostFailed`."""
        if destination := self.known(thread):
            return destination
        conversation = self._conversation(thread)
        async with conversation.opening:
            if conversation.destination is None:
                conversation.destination = await self._find_or_open(thread, conversation)
            return conversation.destination

    def fall_back(self, thread: ThreadId, question: str, refused: DiscordRefused) -> bool:
        """Return whether an answer that is refused in the thread of its *question* goes in place from now on.

        That is so where the bot may open threads but not write in them.
        """
        destination = self.known(thread)
        if refused.kind != "forbidden" or question != thread.root or destination != Destination(thread.root):
            return False
        self._note_refusal(thread.channel, refused)
        self._conversation(thread).destination = _in_place(thread)
        return True

    async def look_up(self, thread: ThreadId) -> Destination:
        """Return the place without opening a thread: in place until there is one. Raises `PostFailed`."""
        if destination := self.known(thread):
            return destination
        if await self._exists(thread.root):
            self.note_thread(thread)
        return self.known(thread) or _in_place(thread)

    async def _find_or_open(self, thread: ThreadId, conversation: _Conversation) -> Destination:
        if not conversation.title and await self._exists(thread.root):
            return Destination(thread.root)
        refuses = self._refusing.get(thread.channel, 0.0) > anyio.current_time()
        if thread.channel in self._in_place or refuses:
            return _in_place(thread)
        try:
            title = conversation.title or title_of(await self._first_text(thread))
            return Destination(await self._rest.open_thread(thread.channel, thread.root, title))
        except DiscordRefused as refused:
            if refused.kind == "gone" and thread.root in self._roots.values():
                return _in_place(thread)  # its first message is deleted, and replies go on
            if refused.kind in ("gone", "token"):
                raise
            self._note_refusal(thread.channel, refused)
            return _in_place(thread)

    async def _exists(self, channel: str) -> bool:
        try:
            await self._rest.channel(channel)
        except DiscordRefused as refused:
            if refused.kind != "gone":
                raise
            return False
        return True

    async def _first_text(self, thread: ThreadId) -> str:
        """Return the text of the message that the conversation begins with."""
        try:
            message = await self._rest.message(thread.channel, thread.root)
        except DiscordRefused as refused:
            if refused.kind == "gone":
                refused.friendly = QUESTION_GONE
            raise
        return message.content

    def _note_refusal(self, channel: str, refused: DiscordRefused) -> None:
        if channel not in self._refusing:
            log.warning("post.no_threads: in channel %s, answers go there as replies: %s", channel, refused)
        self._refusing[channel] = anyio.current_time() + REFUSED_PAUSE_S

    def _conversation(self, thread: ThreadId) -> _Conversation:
        return self._conversations.setdefault(thread, _Conversation())


def title_of(text: str) -> str:
    """Return the first visible line, without mentions, of at most 100 characters; never blank."""
    for line in _EMOJI.sub(r"\1", _MENTION.sub(" ", text)).splitlines():
        visible = "".join(char if char.isprintable() or char == JOINER else " " for char in line)
        title = " ".join(visible.split())
        if title.strip(f"{JOINER} "):
            break
    else:
        return UNTITLED
    if utf16_size(title) <= MAX_TITLE:
        return title
    while utf16_size(title) >= MAX_TITLE:
        title = title[:-1]
    return f"{title.rstrip()}…"


def _in_place(thread: ThreadId) -> Destination:
    return Destination(thread.channel, thread.root)
