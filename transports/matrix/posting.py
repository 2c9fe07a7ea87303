"""Posts: sent once per key, in as many messages as they need, and found again.

The transaction id of a message is made of its post's key: a second request, also after a crash, is answered with
the message that is there. So nothing is posted twice, and no post has to say that it may be a repeat. What a live
draft or an earlier process has sent of it is edited.
"""

from __future__ import annotations

import logging
import mimetypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from cachetools import LRUCache

from threads.errors import PostFailed
from threads.model import Choice, Outgoing, ThreadId
from threads.store.attachments import safe_name
from transports.base.transport import progress
from transports.matrix import render
from transports.matrix.api import NEWER, Api
from transports.matrix.values import (
    decoded,
    encoded,
    mark,
    mark_of,
    newest_content,
    relation,
    room_of,
    root_of,
    text,
    transaction,
)
from transports.shared.buttons import OpenQuestions
from transports.shared.delivery.closed_places import DOTS
from transports.shared.delivery.files import size_of

log = logging.getLogger(__name__)

REMEMBERED = 1_000
MOST_PAGES = 5
"""Pages of a room or thread in which a post is looked for."""
SIGNS = {"/approve": "✅", "/deny": "❌", "/retry": "🔁"}
STOP = "🛑"
NUMBERS = tuple(f"{n}\ufe0f\u20e3" for n in range(1, 10))


MEANINGS = frozenset((*SIGNS.values(), *NUMBERS, STOP))
"""Reactions that may mean something to the bot."""


@dataclass(slots=True)
class _Parts:
    """The messages of one post by the number of the part; ``final`` are those that show it.

    ``drafted`` are parts that were sent as a draft, with or without an answer: such a message has other words.
    """

    events: dict[int, str] = field(default_factory=dict)
    final: set[int] = field(default_factory=set)
    drafted: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PostedQuestion:
    thread: ThreadId
    key: str
    part: int
    text: str


class Posting:
    def __init__(self, api: Api, links: frozenset[str] = frozenset()) -> None:
        self._api, self._links = api, links
        self._posts: LRUCache[str, _Parts] = LRUCache(REMEMBERED)
        self.questions: OpenQuestions[PostedQuestion] = OpenQuestions()

    async def post(self, outgoing: Outgoing) -> str:
        """Post, over what is there of it, and return the id of the first part. Raises `PostFailed`."""
        thread, key, signs = outgoing.thread, outgoing.key, signs_of(outgoing.choices)
        pages = render.pages(_with_choices(outgoing.text, outgoing.choices, signs))
        post, last, to, own = self._parts_of(key), len(pages), outgoing.reply_to, outgoing.links
        with progress(post.final):
            for part, page in enumerate(pages, 1):
                if part not in post.final:
                    choices = signs if part == last else {}
                    await self.show(thread, to, key, page, part, of=last, choices=choices, own=own)
        await self.remove(thread, key, keep=last)
        if signs:
            self.questions.add(key, post.events[last], PostedQuestion(thread, key, last, pages[-1]))
        return encoded(post.events[1])

    async def offer(self, outgoing: Outgoing) -> None:
        """Add the reactions that stand for the choices of a post, as long as it is open."""
        for sign in signs_of(outgoing.choices):
            if question := self.questions.get(outgoing.key):
                await self.react(outgoing.thread, self._parts_of(outgoing.key).events[question.part], sign)

    async def show(
        self, thread: ThreadId, reply_to: str, key: str, page: str, part: int = 1, *, of: int = 1,
        final: bool = True, choices: Mapping[str, str] | None = None, own: Collection[str] = (),
    ) -> None:  # fmt: skip
        """Send a part of a post, or edit its message if there is one. *own* links stay links. Raises `PostFailed`."""
        post, about = self._parts_of(key), decoded(reply_to) if reply_to.startswith("$") else ""
        marked = mark(key, part, of=of, final=final, choices=choices)
        content = render.content(page, marked, root_of(thread), about, self._links.union(own))
        has_other_words = part in post.events or part in post.drafted
        post.drafted.update(() if final else (part,))
        if part not in post.events:
            post.events[part] = await self._api.send(room_of(thread), content, transaction(key, part))
        if has_other_words:
            await self._api.send(room_of(thread), render.edit(post.events[part], content), uuid4().hex)
        if final:
            post.final.add(part)

    async def find(
        self, thread: ThreadId, key: str, *,
        live: Collection[str] = (), alone: Callable[[], bool] = bool,  # noqa: ARG002 - a draft has its post's key here
    ) -> str | None:  # fmt: skip
        """Return the id of the first part if all of the post is known to be out. Raises `PostFailed`.

        What is unfinished is remembered, and edited when the post comes.
        """
        post, start, wanted = self._parts_of(key), "", mark(key)["key"]
        whole = set[int]()
        for _ in range(MOST_PAGES):
            events, start = await self._api.events(room_of(thread), root_of(thread), start)
            for event in events:
                found = mark_of(event)
                ours = event.get("sender") == self._api.me.id and found.get("key") == wanted
                if ours and not relation(event, "m.replace"):
                    post.events[found["part"]] = text(event, "event_id")
                    if found["final"]:
                        post.final.add(found["part"])
                        whole = {*range(1, found["of"] + 1)}
                    if found["choices"]:  # an earlier process asked
                        question = PostedQuestion(
                            thread, key, found["part"], text(newest_content(event), "body")
                        )
                        self.questions.add(key, post.events[found["part"]], question)
            if post.events or not start:
                break
        return encoded(post.events[1]) if whole and whole == post.final == {*post.events} else None

    async def sweep(self, thread: ThreadId, key: str) -> None:
        """Delete what a killed process left unfinished of a post that will not come. Raises `PostFailed`."""
        if not await self.find(thread, key):
            await self.remove(thread, key)

    async def remove(self, thread: ThreadId, key: str, keep: int = 0) -> None:
        """Delete all messages of a post but the first ones. Raises `PostFailed`."""
        post = self._parts_of(key)
        for part in [part for part in post.events if part > keep]:
            await self._api.redact(room_of(thread), post.events[part])
            del post.events[part]

    async def clear(self, thread: ThreadId, key: str, draft: Sequence[str]) -> None:
        """Do nothing: `post` writes over the messages of a draft, and deletes those that it did not need."""

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Post a file to the thread under this name. Raises `PostFailed`, friendly if the file is rejected."""
        limit = (await self._api.call("GET", f"{NEWER}/media/config")).get("m.upload.size") or 10 * 2**20
        size, name = await size_of(file, limit), safe_name(name)
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        kind, info = media_type.partition("/")[0], {"mimetype": media_type, "size": size}
        where = await self._api.upload(room_of(thread), file, name, media_type, size)
        shown = {"msgtype": f"m.{kind}" if kind in ("image", "audio", "video") else "m.file", "body": name}
        content = {**shown, "filename": name, "info": info, **where, **render.in_thread(root_of(thread))}
        await self._api.send(room_of(thread), content, transaction(key, "file"))

    async def try_out(self, thread: ThreadId) -> None:
        """Post a few dots in a thread, and remove them. Raises `PostFailed`."""
        room, marked = room_of(thread), mark("", final=False)
        dots = await self._api.send(room, render.content(DOTS, marked, root_of(thread)), uuid4().hex)
        await self._api.redact(room, dots)

    async def tell(self, person: str, words: str, key: str) -> None:
        """Tell a person something in a direct room. Raises `PostFailed`."""
        content = render.content(words, mark(key))
        await self._api.send(await self._api.direct_room(person), content, transaction(key, "closed"))

    async def close_question(self, question: PostedQuestion, decision: str) -> None:
        if decision:
            page = f"{question.text}\n\n*{render.plain(decision)}*"
            await self.show(question.thread, "", question.key, page, question.part, of=question.part)
        else:
            await self.remove(question.thread, question.key)

    async def react(self, thread: ThreadId, event: str, sign: str) -> None:
        """Add a reaction. What cannot be added costs nothing else: a choice stands in the text as well."""
        content = {"m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": sign}}
        try:
            await self._api.send(room_of(thread), content, transaction(event, sign), "m.reaction")
        except PostFailed as error:
            log.info("reaction.failed: %s", error)

    def _parts_of(self, key: str) -> _Parts:
        return self._posts.setdefault(key, _Parts())


def signs_of(choices: Sequence[Choice]) -> dict[str, str]:
    """Return the command that each reaction stands for; choices beyond are typed."""
    numbers, signs = iter(NUMBERS), dict[str, str]()
    for choice in choices:
        sign = SIGNS.get(choice.command.partition(" ")[0])
        signs.setdefault(sign if sign and sign not in signs else next(numbers, ""), choice.command)
    signs.pop("", None)
    return signs


def _with_choices(words: str, choices: Sequence[Choice], signs: Mapping[str, str]) -> str:
    by_command = {command: f"{sign} " for sign, command in signs.items()}
    lines = [
        f"- {by_command.get(choice.command, '')}{render.plain(choice.label)}: `{choice.command.replace('`', '')}`"
        for choice in choices
    ]
    return "\n\n".join(filter(None, (words, "\n".join(lines))))
