"""The live text of one turn, in messages that are edited until the final text takes their place.

| state  | event                                                    | next                                    |
|--------|----------------------------------------------------------|-----------------------------------------|
| silent | something to show                                        | live                                    |
| live   | other text, more or fewer messages                       | live: one call in its turn, then again  |
| live   | its messages are too old to be edited                    | silent: they go, new ones take over     |
| either | not answered, or a rate limit                            | the same call again, after a pause      |
| either | refused                                                  | mute: what is there stays               |
| any    | `hand_over`: the final text goes into its messages       | over                                    |
| any    | `close`: no final text will come                         | over                                    |

A turn is never held up. Each call shows the newest text, so a draft that waits misses nothing. Every message of a
draft has a Stop button with the nonce of its post; a message without one is meant to stay.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from threads.errors import PostFailed
from threads.model import Outcome, ThreadId, TurnEvent, message_key
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.live.draft_content import DraftContent, DraftPage, Mode
from transports.discord.live.pacing import Pace
from transports.discord.markdown.buttons import stop_button
from transports.discord.markdown.render import MAX_CONTENT, note, utf16_size
from transports.discord.post.nonces import nonce_of
from transports.discord.post.page_sender import reply_target
from transports.discord.post.rewrite import DraftMessage, remove
from transports.discord.post.thread_opening import Destination, Destinations
from transports.shared.delivery import rewrite
from transports.shared.retry import retry

log = logging.getLogger(__name__)

OLD_AFTER_S = 50 * 60.0
"""Messages older than an hour can be edited a few times only (30046)."""

END_WITHIN_S = 10.0
"""How long the end of a draft waits for a message that is being sent; not for an edit: `Rest` keeps the order."""

CLOSE_WITHIN_S = 120.0

PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0

STOPPED, UNFINISHED = note("stopped"), note("not finished")


@dataclass(slots=True)
class _Part:
    """A message of the draft, sent ``at``. ``certain``: it shows ``page``."""

    id: str
    page: DraftPage
    at: float
    certain: bool = True


class LiveDraft:
    """The draft of the answer to a message. `feed` takes events in, `run` makes the calls."""

    def __init__(
        self,
        thread: ThreadId,
        message_id: str,
        rest: Rest,
        destinations: Destinations,
        pace: Pace,
        mode: Mode = "edits",
        *,
        before_first: Callable[[], Awaitable[None]],
    ) -> None:
        """*before_first* is awaited before the first message is sent."""
        self.lost = False
        """Whether Discord may show another message of this draft, whose id is unknown."""
        self._thread, self._question = thread, message_id
        self._key = message_key(thread, message_id)
        self._rest, self._destinations, self._pace = rest, destinations, pace
        self._content, self._before_first = DraftContent(mode), before_first
        self._buttons = (stop_button(nonce_of(self._key)),)
        self._parts: list[_Part] = []
        self._destination: Destination | None = None
        self._changed = anyio.Event()
        self._too_old = self._outdated = self._ended = self._sending = False
        self._scope, self._idle = anyio.CancelScope(), anyio.Event()
        self._idle.set()

    @property
    def messages(self) -> tuple[DraftMessage, ...]:
        """Return its messages, the one of the first part first, with what they show."""
        channel = self._destination.channel if self._destination else ""
        return tuple(
            DraftMessage(channel, part.id, part.page.content if part.certain else "") for part in self._parts
        )

    def feed(self, event: TurnEvent) -> None:
        """Take in what goes on in the turn. Never blocks; how much is kept is bounded."""
        if self._content.feed(event, anyio.current_time()):
            self._outdated = True
            self._changed.set()

    async def run(self) -> None:
        """Show the draft until it is over."""
        if self._ended:
            return
        self._idle = anyio.Event()
        try:
            with self._scope:
                await self._show()
        finally:
            self._idle.set()

    async def hand_over(self) -> tuple[DraftMessage, ...]:
        """End all calls, and return the messages: the final text is written over them."""
        await self._end()
        return self.messages

    async def close(self, outcome: Outcome) -> None:
        """End the draft without a final text: messages with text stay, the others are deleted.

        If what they answer was deleted, all of them are. The last message that stays says how the turn ended. Never
        raises `PostFailed`; a message that cannot be changed stays as it is.
        """
        if self._ended:
            return
        await self._end()
        ending = f"\n{STOPPED if outcome == 'stopped' else UNFINISHED}"
        with anyio.move_on_after(CLOSE_WITHIN_S) as scope:
            for message, part in reversed([*zip(self.messages, self._parts, strict=True)]):
                if (text := part.page.text) and outcome != "withdrawn":
                    fits = utf16_size(text + ending) <= MAX_CONTENT
                    await self._finish(message, text + ending if fits else text)
                    ending = ""
                else:
                    await remove(self._rest, message.channel, message.id)
        if scope.cancelled_caught:
            log.info("live.left: as it was")

    async def _finish(self, message: DraftMessage, content: str) -> None:
        """Remove the button, which marks a message as unfinished."""

        async def edit() -> None:
            async with self._pace.turn_in(message.channel):
                await self._rest.edit(message.channel, message.id, content, urgent=False)

        try:
            await retry(edit, rewrite.PAUSES_S)
        except PostFailed as error:
            log.info("live.left: as it was: %s", error)

    async def _end(self) -> None:
        """Make no further call; return when no message is being sent, or after a while."""
        self._ended = True
        if not self._sending:
            self._scope.cancel()
        with anyio.move_on_after(END_WITHIN_S):
            await self._idle.wait()
        self._scope.cancel()
        await self._idle.wait()

    async def _show(self) -> None:
        pause = PAUSE_S
        while True:
            await self._wait_for_change()
            try:
                destination = self._destination = self._destination or await self._destinations.open(
                    self._thread
                )
                async with self._pace.turn_in(destination.channel):
                    await self._call(destination)
                pause = PAUSE_S
            except DiscordRefused as refused:
                if refused.kind != "old":
                    log.info("live.refused: %s", refused, extra={"thread_id": str(self._thread)})
                    return
                self._too_old = True
            except PostFailed as error:
                log.debug("live.waits: %s", error)
                await anyio.sleep(min(error.retry_after or pause, LONGEST_PAUSE_S))
                pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _wait_for_change(self) -> None:
        """Wait until there is something new to show."""
        while True:
            self._changed = anyio.Event()
            wait = 0.0 if self._parts else self._content.due - anyio.current_time()
            if self._outdated and wait <= 0:
                return
            with anyio.move_on_after(wait if self._outdated else None):
                await self._changed.wait()

    async def _call(self, destination: Destination) -> None:
        """Make the one call that is most needed. Raises `PostFailed`."""
        with self._pace.work():
            outdated = self._outdated_parts()
        self._outdated = len(outdated) > 1
        if not outdated:
            return
        await anyio.lowlevel.checkpoint_if_cancelled()  # or the call would go out and its answer be lost
        number, page = outdated[0]
        try:
            if self._parts and (self._too_old or anyio.current_time() - self._parts[0].at > OLD_AFTER_S):
                await self._withdraw_last(destination.channel)
            elif number < len(self._parts):
                await self._edit(destination.channel, self._parts[number], page)
            else:
                await self._send(destination, number, page)
        except PostFailed:
            self._outdated = True
            raise

    def _outdated_parts(self) -> list[tuple[int, DraftPage]]:
        """Return the parts that are out of date, each with the page it should show."""
        pages = self._content.pages
        wanted = (*pages, *[DraftPage()] * (len(self._parts) - len(pages)))
        old = [part.page if part.certain else None for part in self._parts]
        return [(number, page) for number, page in enumerate(wanted) if [page] != old[number : number + 1]]

    async def _send(self, destination: Destination, number: int, page: DraftPage) -> None:
        """Send a part. After a lost answer it is sent again: its nonce makes Discord keep one message."""
        if not self._parts:
            await self._before_first()
        resends, self.lost = self.lost, True  # until the answer is there
        self._sending = True
        try:
            sent = await self._rest.send(
                destination.channel,
                page.content,
                nonce=nonce_of(self._key, number),
                reply_to=reply_target(destination, self._thread, self._question, number),
                buttons=self._buttons,
                urgent=False,
            )
        except PostFailed as error:
            self.lost = resends or error.maybe_posted
            raise
        finally:
            self._sending = False
            if self._ended:
                self._scope.cancel()
        self.lost = False
        certain = not resends or sent.content == page.content
        self._outdated = self._outdated or not certain
        self._parts.append(_Part(str(sent.id), page, anyio.current_time(), certain))

    async def _edit(self, channel: str, part: _Part, page: DraftPage) -> None:
        certain, part.certain = part.certain, False  # until the answer is there
        try:
            await self._rest.edit(channel, part.id, page.content, buttons=self._buttons, urgent=False)
        except DiscordRefused:
            part.certain = certain
            raise
        part.page, part.certain = page, True

    async def _withdraw_last(self, channel: str) -> None:
        """Delete the last message; when none is left, the draft begins again."""
        self._too_old = self._outdated = True
        await self._rest.delete(channel, self._parts[-1].id)
        self._parts.pop()
        self._too_old = bool(self._parts)
