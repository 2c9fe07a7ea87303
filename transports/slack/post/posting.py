"""Posts: sent once per key, in as many messages as they need, and found again.

``chat.update`` and ``chat.stopStream`` can be repeated at will, ``chat.postMessage`` cannot: when its answer is lost,
`Posting.find` looks for the tag that every message of ours carries (`post_tags.Tag`). What is known to be out is
remembered, so that a repeated post goes on where it stopped.

    a part that                               goes out by
    has a draft message, still open           chat.stopStream; chat.update if it shows anything but the part
    has a draft message that has ended        chat.update
    has none, or its draft is gone            chat.postMessage
    Slack refuses in blocks                   the same in plain text
    is for one person, in a channel           chat.postEphemeral; where that is refused, as the others
    is the fifth                              a file with the whole text; where that is refused, as the others

A refusal that no other form can fix (the place, the token, a scope, a deleted root) is raised: an answer in another
place than its question would be worse than none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import anyio
from cachetools import LRUCache
from pydantic import JsonValue

from threads.errors import PostFailed, TransportRateLimited, TransportUnavailable, retry_fields
from threads.model import Outgoing, ThreadId
from transports.base.transport import progress
from transports.shared.buttons import OpenQuestions
from transports.shared.delivery.files import file_name
from transports.slack.api import thread_history
from transports.slack.api.api_errors import SlackRefused, refused_for_good
from transports.slack.api.json_fields import (
    Shape,
    instant,
    is_direct,
    is_one_persons,
    parts,
    place_of,
    stamp,
    string,
)
from transports.slack.api.web_api import Identity, WebApi
from transports.slack.markdown.blocks import without_actions
from transports.slack.markdown.links import Links
from transports.slack.post import uploads
from transports.slack.post.message_pages import MAX_PARTS, MessagePage, beginning, pages
from transports.slack.post.post_lookup import PostLookups, ThreadScan
from transports.slack.post.post_tags import Sent, Tag, fold, since_of
from transports.slack.post.rewrite import DraftMessage, remove, take_over

log = logging.getLogger(__name__)

Send = Callable[[Tag, str, list[JsonValue] | None], Awaitable[str]]
"""Sends a text, with blocks or without, as the message of that tag, and returns its ts."""

REMEMBERED = 1_000
"""Posts that are known by key."""

PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class PostedQuestion:
    """A question that is out: the message with its buttons."""

    channel: str
    ts: str
    blocks: Sequence[Shape]
    plain: str


class Posting:
    """Posts to one workspace. ``feedback``: replies get thumbs up and down."""

    def __init__(self, web: WebApi, me: Identity, *, feedback: bool = False) -> None:
        self._web, self._feedback = web, feedback
        self._lookups = PostLookups(web, frozenset(filter(None, (me.user, me.bot_id))))
        self._sent: LRUCache[str, Sent] = LRUCache(REMEMBERED)
        self.questions: OpenQuestions[PostedQuestion] = OpenQuestions()

    async def post(self, outgoing: Outgoing, links: Links, draft: Sequence[DraftMessage] = ()) -> str:
        """Post, into the *draft* messages as far as they go, and return the ts of the first part.

        Raises `PostFailed`; call again with the same arguments then, or with those of the draft that are left.
        """
        sent = self._sent.setdefault(outgoing.key, Sent())
        sent.ours = True
        with progress(sent.out):
            if not (_is_for_one_person(outgoing) and await self._post_ephemeral(outgoing, links, sent)):
                await self._publish(outgoing, links, draft, sent)
        await self.clear(outgoing.thread, outgoing.key, draft)
        return sent.first

    async def clear(self, thread: ThreadId, key: str, draft: Sequence[DraftMessage]) -> None:
        """Delete the draft messages that the finished post did not use. Never raises."""
        used = self._sent.setdefault(key, Sent()).out.values()
        for unused in draft:
            if unused.id not in used:
                await remove(self._web, thread.channel, unused.id, leave="-")

    async def find(
        self, thread: ThreadId, key: str, *, live: Collection[str], alone: Callable[[], bool] = lambda: True
    ) -> str | None:
        """Return the ts of the first part if the whole post is out. `post` continues from what is found.

        A post for one person alone cannot be found, and may be repeated. *live* are the ts of all live messages in
        the thread. The first look also deletes what an earlier process left unfinished, if the post is *alone*: a
        command is answered beside a turn, whose draft is not to be hit. Raises `PostFailed`.
        """
        sent = self._sent.setdefault(key, Sent())
        known, sent.ours = sent.ours, True
        try:
            if known:
                scan = await self._lookups.again(thread, since_of(key), live)
            else:
                scan = await self._lookups.first(thread, key, live)
        except PostFailed:
            sent.ours = known
            raise
        messages = scan.messages
        fold(messages, key, sent)
        if not known and "?" not in key and alone():  # a question is asked beside the draft of its turn
            await self._sweep(thread, scan)
        if not thread.root and sent.first and not sent.whole:  # the rest is in the thread below it
            fold(await thread_history.read(self._web, thread.channel, sent.first, sent.first), key, sent)
        for message in messages if "?" in key and sent.whole else ():
            if stamp(message, "ts") == sent.first:
                blocks, plain = parts(message, "blocks"), string(message, "text")
                self._note_question(key, thread.channel, sent.first, blocks, plain)
        return sent.first if sent.whole else None

    async def sweep(
        self,
        thread: ThreadId,
        since: str,
        *,
        undisturbed: Callable[[], bool] = lambda: True,
        again: bool = True,
    ) -> bool:
        """Delete the unfinished messages of a thread since that ts; return False if it was not *undisturbed*.

        Nothing else can be hit: they are ours, later than that, without the tag of a finished message, and no post of
        this process; and between two turns nothing is live. Without *again* the first scan is enough, if there was
        one. Raises `PostFailed`.
        """
        scan = None if again else self._lookups.known(thread, since)
        if scan is None:
            scan = await self._lookups.again(thread, since, (), urgent=False)
            if not undisturbed():
                return False
        await self._sweep(thread, scan)
        return True

    async def _sweep(self, thread: ThreadId, scan: ThreadScan) -> None:
        """Delete the unfinished messages of a scan. Those that stay are left in it."""
        unfinished, scan.unfinished = scan.unfinished, []
        for ts in unfinished:
            if any(ts in sent.out.values() for sent in self._sent.values()):
                continue  # this process has finished it
            log.info(
                "post.swept: sweeping an unfinished answer", extra={"thread_id": str(thread), "post_id": ts}
            )
            if not await remove(self._web, thread.channel, ts):
                scan.unfinished.append(ts)

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Post a file to the thread under this name. Raises `PostFailed`, friendly if the file is rejected.

        When an answer is lost, the file is looked up by its id, so that it is not shown twice.
        """
        name = PurePath(name).name or "file"
        file_id = await uploads.upload(self._web, *await uploads.of_file(file, uploads.MAX_BYTES), name)
        try:
            await uploads.share(self._web, file_id, name, thread.channel, thread.root)
        except PostFailed as error:
            if not error.retryable:
                raise
            pause = error.retry_after or PAUSE_S
            fields = {"thread_id": str(thread), **retry_fields(error, 2, pause)}
            log.warning("file.share_failed: %s", error, extra=fields)
            await anyio.sleep(pause)
            said = await thread_history.read(self._web, thread.channel, thread.root, since_of(key))
            if not any(
                string(shared, "id") == file_id for message in said for shared in parts(message, "files")
            ):
                await uploads.share(self._web, file_id, name, thread.channel, thread.root)

    async def close_question(self, question: PostedQuestion, decision: str) -> None:
        if not decision:
            await remove(self._web, question.channel, question.ts)
            return
        await self._web.call(
            "chat.update",
            channel=question.channel,
            urgent=False,
            ts=question.ts,
            blocks=[*without_actions(question.blocks, decision)],
            text=question.plain,
            parse="none",
            link_names=False,
        )

    async def _publish(
        self, outgoing: Outgoing, links: Links, draft: Sequence[DraftMessage], sent: Sent
    ) -> None:
        """Post all parts for everybody in the conversation."""
        whole = pages(outgoing, links, inert=bool(draft or outgoing.choices), feedback=self._feedback)
        if len(whole) <= MAX_PARTS or not await self._as_file(outgoing, whole[0], draft, sent):
            for number, page in enumerate(whole):
                await self._show(outgoing.thread, page, draft[number : number + 1], sent)
        if outgoing.choices and (ts := sent.out.get(whole[-1].tag.part)):
            last = whole[-1]
            self._note_question(outgoing.key, outgoing.thread.channel, ts, last.blocks, last.plain)

    def _note_question(self, key: str, channel: str, ts: str, blocks: Sequence[Shape], plain: str) -> None:
        self.questions.add(key, place_of(channel, ts), PostedQuestion(channel, ts, blocks, plain))

    async def _post_ephemeral(self, outgoing: Outgoing, links: Links, sent: Sent) -> bool:
        """Post for one person alone; return False if Slack cannot, and the post has to be for all.

        The address of a press or a slash command works also where the bot is not a member.
        """
        thread, url = outgoing.thread, outgoing.reply_address

        async def send(_: Tag, text: str, blocks: list[JsonValue] | None) -> str:
            try:
                answer = await self._web.call(
                    "chat.postEphemeral",
                    channel=thread.channel,
                    user=outgoing.to,
                    thread_ts=thread.root or None,
                    text=text,
                    blocks=blocks,
                )
            except SlackRefused as refused:
                if refused.kind == "token" or not url:
                    raise
                await self._web.respond(
                    url, {"thread_ts": thread.root or None, "text": text, "blocks": blocks}
                )
                return "ephemeral"
            return stamp(answer, "message_ts")

        try:
            for page in pages(outgoing, links, inert=True, most=MAX_PARTS):
                await _send_page(page, sent, send)
        except SlackRefused as refused:
            alone = outgoing.reply_to.startswith("slash-") and not is_direct(thread.channel)
            if refused.kind == "token" or alone:
                raise
            log.info("post.not_private: not for one alone: %s", refused, extra={"thread_id": str(thread)})
            return False
        return True

    async def _as_file(
        self, outgoing: Outgoing, first: MessagePage, draft: Sequence[DraftMessage], sent: Sent
    ) -> bool:
        """Post the whole text as a file, and its first page; return False if it has to go out in messages.

        The file comes first, so that the page never names one that Slack refuses. A channel has no thread yet that
        the file could be in.
        """
        thread, file = outgoing.thread, file_name(outgoing.key)
        if sent.parts > 1 or not thread.root:
            return False
        try:
            if not sent.filed:
                file_id = await uploads.upload(self._web, *uploads.of_text(outgoing.text), file)
                await uploads.share(self._web, file_id, file, thread.channel, thread.root)
        except PostFailed as error:
            if error.maybe_posted or isinstance(error, TransportRateLimited):
                raise
            log.warning("post.no_file: for a long answer: %s", error, extra={"thread_id": str(thread)})
            return False
        sent.filed = True
        await self._show(thread, beginning(first, outgoing, file, feedback=self._feedback), draft[:1], sent)
        return True

    async def _show(
        self, thread: ThreadId, page: MessagePage, draft: Sequence[DraftMessage], sent: Sent
    ) -> None:
        """Show one page, once: in its draft message, or in one of its own."""

        async def send(tag: Tag, text: str, blocks: list[JsonValue] | None) -> str:
            answer = await self._web.call(
                "chat.postMessage",
                channel=thread.channel,
                thread_ts=thread.root or sent.first or None,  # in a channel, the rest is below the first part
                text=text,
                blocks=blocks,
                metadata=tag.metadata(),
                unfurl_links=False,
                unfurl_media=False,
            )
            if ts := stamp(answer, "ts"):
                return ts
            raise TransportUnavailable("chat.postMessage: no ts in the answer", maybe_posted=True)

        last = max(map(instant, sent.out.values()), default=0)
        for message in draft:  # one that stands above an earlier part would break the order
            if (
                page.tag.part not in sent.out
                and instant(message.id) > last
                and await take_over(self._web, thread.channel, message, page)
            ):
                sent.add(page.tag, message.id)
        await _send_page(page, sent, send)


async def _send_page(page: MessagePage, sent: Sent, send: Send) -> None:
    """Send a page that is not out: in blocks or, if those are refused, in plain text."""
    if page.tag.part in sent.out:
        return
    try:
        ts = await send(page.tag, page.plain, [*page.blocks])
    except SlackRefused as refused:
        if refused_for_good(refused) or refused.kind == "gone":
            raise
        log.warning("post.blocks_refused: the text goes without: %s", refused)
        ts = await send(page.tag, page.words, None)
    sent.add(page.tag, ts)


def _is_for_one_person(outgoing: Outgoing) -> bool:
    """Return whether a post is for its addressee alone: a refusal, or the answer to a slash command or a button."""
    if outgoing.reply_to.startswith("slash-"):
        return bool(outgoing.to)
    if not outgoing.to or is_direct(outgoing.thread.channel):
        return False
    press = outgoing.kind == "notice" and is_one_persons(outgoing.reply_to)
    return outgoing.kind == "refusal" or press or bool(not outgoing.thread.root and outgoing.reply_to)
