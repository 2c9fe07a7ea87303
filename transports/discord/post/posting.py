"""Posts: sent once per key, in as many messages as they need, and found again.

An edit can be repeated at will. A new message carries a nonce, made of the post's key and the part's number: if it is
sent again within minutes, Discord answers with the message it has. Later `Posting.find` looks for it. Parts that are
posted are remembered, so that a repeated post goes on where it stopped.

    a part that                               goes out by
    has a live message, or one that was left  an edit of that
    has none, or its live message is gone     a message, the first of them as a reply to the question
    is for one person                         an answer to their press or command; if refused, as the others
    is forbidden in the thread opened for it  a message in place of the thread
    is the sixth                              a file with the whole text; if refused, as the others

A refusal that no other form can fix (the place, the token, a permission) is raised: an answer in another place than
its question would be worse than none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cachetools import LRUCache

from threads.errors import PostFailed
from threads.model import Outgoing, ThreadId, WallClock, message_key
from threads.store.attachments import safe_name
from transports.base.transport import progress
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.options import Options
from transports.discord.api.rest import Rest
from transports.discord.api.values import Upload
from transports.discord.post.ephemeral_answers import EphemeralAnswers
from transports.discord.post.message_pages import MAX_PARTS, MessagePage, pages, with_file, with_note
from transports.discord.post.nonces import nonce_of, question_of, since_of
from transports.discord.post.page_sender import PageSender, reply_target
from transports.discord.post.post_lookup import PostState, read
from transports.discord.post.rewrite import DraftMessage, remove
from transports.discord.post.thread_opening import Destination, Destinations
from transports.shared.buttons import OpenQuestions
from transports.shared.delivery.closed_places import DOTS
from transports.shared.delivery.files import size_of
from transports.shared.retry import retry

log = logging.getLogger(__name__)

MOST_SWEPT = 10
REMEMBERED = 1_000
"""Posts that are known."""

UPLOAD_PAUSE_S = 1.0

MAY_NOT_UPLOAD = "I may not send files here: someone who manages this server has to let me attach files."


@dataclass(frozen=True, slots=True)
class PostedQuestion:
    """A question that is out: the message with its buttons."""

    channel: str
    id: str
    content: str


class Posting:
    """``upload_limit`` tells how many bytes a file may have in a guild."""

    def __init__(
        self,
        rest: Rest,
        destinations: Destinations,
        answers: EphemeralAnswers,
        upload_limit: Callable[[str], int],
        options: Options,
        now: WallClock,
    ) -> None:
        self._rest, self._destinations, self._answers = rest, destinations, answers
        self._upload_limit, self._now, self._feedback = upload_limit, now, options.feedback
        self._states: LRUCache[str, PostState] = LRUCache(REMEMBERED)
        self.questions: OpenQuestions[PostedQuestion] = OpenQuestions()

    async def post(self, outgoing: Outgoing, draft: Sequence[DraftMessage] = ()) -> str:
        """Post, into the *draft* messages as far as they go, and return the id of the first part.

        Raises `PostFailed`; call again with the same arguments then, or with those of the draft that are left.
        """
        state = self._state_of(outgoing.key)
        with progress(state.posted):
            if not (_is_private(outgoing) and await self._post_for_one(outgoing, state)):
                await self._post_for_all(outgoing, draft, state)
                await self._answers.end_thinking(outgoing.reply_to, outgoing.reply_address)
        await self.clear(outgoing.thread, outgoing.key, draft)
        return state.first

    async def find(
        self,
        thread: ThreadId,
        key: str,
        *,
        live: Collection[str],
        alone: Callable[[], bool] = lambda: True,  # noqa: ARG002 - a draft has the name of its post here
    ) -> str | None:
        """Return the id of the first part if all of the post is known to be out.

        Messages that may belong to it are remembered: only `post`, with the text, recognizes parts that Discord shows
        without their nonces, and it writes over what a killed process left unfinished, except a *live* draft.
        Raises `PostFailed`. A post for one person alone cannot be found, and may be repeated.
        """
        state = self._state_of(key)
        try:
            destination = state.destination or await self._destinations.look_up(thread)
            candidates = await read(self._rest, destination, key, since_of(key))
        except DiscordRefused as refused:
            if refused.kind == "gone":
                return None
            raise
        state.candidates = [message for message in candidates if message.id not in live]
        state.match_pages()
        if state.candidates:
            state.destination = destination  # what is out stays together, whatever has become possible since
        if state.is_complete:
            self._note_answers(thread, state)
            await self._sweep(thread, state)
            return state.first
        if live:  # the answer is written over that, so what else is unfinished goes first
            await self._remove(thread, destination, unfinished := state.unfinished())
            state.candidates = [message for message in state.candidates if message.id not in unfinished]
        return None

    async def sweep(self, thread: ThreadId, key: str, *, live: Collection[str]) -> None:
        """Delete what a killed process left unfinished of a post that will not come. Raises `PostFailed`."""
        if not await self.find(thread, key, live=live):
            await self._sweep(thread, self._state_of(key))

    async def clear(self, thread: ThreadId, key: str, draft: Sequence[DraftMessage]) -> None:
        """Delete the messages that the finished post did not use. Never raises."""
        state = self._state_of(key)
        used = {*state.posted.values()}
        for message in draft:
            if message.id not in used:
                await remove(self._rest, message.channel, message.id)
        await self._sweep(thread, state, {message.id for message in draft})

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Post a file to the thread under this name. Raises `PostFailed`, friendly if the file is rejected."""
        await size_of(file, self._upload_limit(thread.workspace))
        upload, destination = Upload(file, safe_name(name)), await self._destinations.open(thread)
        question = reply_target(destination, thread, question_of(key), part=1)
        # A second try has the same nonce, so the file is shown once.
        send = partial(
            self._rest.send, destination.channel, "", nonce=nonce_of(key), reply_to=question, upload=upload
        )
        try:
            await retry(send, (UPLOAD_PAUSE_S,), _log_upload_retry)
        except DiscordRefused as refused:
            if refused.kind == "forbidden":
                refused.friendly = MAY_NOT_UPLOAD
            raise

    async def try_out(self, thread: ThreadId, message_id: str) -> None:
        """Post a few dots where the answer to the message goes, and remove them. Raises `PostFailed`."""
        nonce = nonce_of(f"{message_key(thread, message_id)}?open")
        destination = await self._destinations.open(thread)
        try:
            sent = await self._rest.send(destination.channel, DOTS, nonce=nonce)
        except DiscordRefused as refused:
            if not self._destinations.fall_back(thread, message_id, refused):
                raise
            sent = await self._rest.send(thread.channel, DOTS, nonce=nonce)
        await remove(self._rest, str(sent.channel.id), str(sent.id))

    async def close_question(self, question: PostedQuestion, decision: str) -> None:
        if not decision:
            await remove(self._rest, question.channel, question.id)
            return
        content = with_note(question.content, decision)
        await self._rest.edit(question.channel, question.id, content, urgent=False)

    async def _post_for_one(self, outgoing: Outgoing, state: PostState) -> bool:
        """Post for one person alone; return False if Discord cannot, and the post has to be for all."""
        state.pages = pages(outgoing, MAX_PARTS)
        try:
            for page in state.pages:
                if page.part not in state.posted:
                    state.posted[page.part] = await self._answers.answer(
                        outgoing.reply_to, outgoing.reply_address, page.content, page.buttons
                    )
        except DiscordRefused as refused:
            if refused.kind == "token":
                raise
            log.info(
                "post.not_private: not for one alone: %s", refused, extra={"thread_id": str(outgoing.thread)}
            )
            return False
        return True

    async def _post_for_all(
        self, outgoing: Outgoing, draft: Sequence[DraftMessage], state: PostState
    ) -> None:
        """Post all parts for everybody in the conversation, if need be in place of its thread."""
        try:
            await self._publish(outgoing, draft, state)
        except DiscordRefused as refused:
            if state.posted or not self._destinations.fall_back(outgoing.thread, outgoing.reply_to, refused):
                raise
            state.destination = None
            await self._publish(outgoing, draft, state)

    async def _publish(self, outgoing: Outgoing, draft: Sequence[DraftMessage], state: PostState) -> None:
        # A refusal opens no thread.
        find = self._destinations.look_up if outgoing.kind == "refusal" else self._destinations.open
        destination = state.destination = state.destination or await find(outgoing.thread)
        live = [message.id for message in draft if message.channel == destination.channel]
        sender = PageSender(self._rest, self._now, outgoing, destination, live, state)
        all_pages = pages(outgoing, feedback=self._feedback)
        if len(all_pages) <= MAX_PARTS or not await self._as_file(sender, all_pages):
            state.set_pages(all_pages)
            for page in all_pages:
                await sender.show(page)
        self._note_answers(outgoing.thread, state)
        if outgoing.choices and (question_page := next((page for page in state.pages if page.buttons), None)):
            channel, message_id = sender.destination.channel, state.posted[question_page.part]
            question = PostedQuestion(channel, message_id, question_page.content)
            self.questions.add(outgoing.key, message_id, question)

    async def _as_file(self, sender: PageSender, all_pages: Sequence[MessagePage]) -> bool:
        """Post the beginning and the whole text as a file; return False if it has to go out in messages."""
        outgoing, state = sender.outgoing, sender.state
        text = outgoing.text.strip().encode("utf-8", "replace")
        state.as_messages = state.as_messages or any(
            message.shows(page) for message in state.candidates for page in all_pages
        )
        if state.as_messages or len(text) > self._upload_limit(outgoing.thread.workspace):
            return False
        state.set_pages(with_file(outgoing, feedback=self._feedback))
        beginning, file = state.pages
        await sender.show(beginning)
        try:
            await sender.show(file, Upload(text, file.file))
        except DiscordRefused as refused:
            if refused.kind in ("token", "gone", "locked"):
                raise
            log.warning(
                "post.no_file: for a long answer: %s", refused, extra={"thread_id": str(outgoing.thread)}
            )
            state.as_messages, state.to_overwrite = True, (state.posted.pop(beginning.part),)
            return False
        return True

    async def _sweep(self, thread: ThreadId, state: PostState, but: Collection[str] = ()) -> None:
        if state.destination is not None:
            await self._remove(thread, state.destination, state.unfinished(but))
        state.candidates = state.to_overwrite = ()

    async def _remove(self, thread: ThreadId, destination: Destination, unfinished: Sequence[str]) -> None:
        for message in unfinished[:MOST_SWEPT]:
            log.info(
                "post.swept: sweeping an unfinished answer",
                extra={"thread_id": str(thread), "post_id": message},
            )
            await remove(self._rest, destination.channel, message)

    def _note_answers(self, thread: ThreadId, state: PostState) -> None:
        if state.destination and state.destination.reply_to:
            self._destinations.note_answers(thread.root, state.posted.values())

    def _state_of(self, key: str) -> PostState:
        return self._states.setdefault(key, PostState(key))


def _is_private(outgoing: Outgoing) -> bool:
    """Return whether a post answers a slash command, or refuses a press of a button or a question about a message."""
    refuses = outgoing.kind in ("notice", "refusal")
    return outgoing.reply_to.startswith("slash-") or (
        outgoing.reply_to.startswith(("ask-", "press-")) and refuses
    )


def _log_upload_retry(error: PostFailed, fields: Mapping[str, object]) -> None:
    log.warning("file.upload_failed: %s", error, extra=fields)
