"""A live answer in Slack's own streams (chat.startStream, appendStream, stopStream): text that only grows, and cards.

| state  | event                                              | next   |
|--------|----------------------------------------------------|--------|
| idle   | something to show, and a start is to be had        | open   |
| idle   | the start is refused                               | barred |
| idle   | nobody knows whether the start was carried out     | mute   |
| open   | more to show: it is appended                       | open   |
| open   | 240 s, 9,000 bytes, msg_too_long: it is stopped    | idle   |
| open   | an answer was lost, or its text was taken back     | idle   |
| open   | message_not_in_streaming_state                     | idle   |
| open   | stopped_by_user, or it cannot be written to        | mute   |

Slack ends a stream about 5 min after its start, and refuses text beyond about 10.6 kB; neither is documented. A
stopped stream is a post like any other. A barred draft goes on as an edited post, in the whole workspace if Slack has
no streams there. A mute one shows nothing more until the final text.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Literal

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed, TransportRateLimited, TransportUnavailable
from threads.model import ThreadId, ToolFinished, ToolStarted
from transports.shared.live.activity import RunningTools, tool_label
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import Shape, string
from transports.slack.live.draft_calls import DraftCalls
from transports.slack.live.draft_content import Batch, Card, Script, inert
from transports.slack.markdown.links import Links
from transports.slack.markdown.open_fences import Fences
from transports.slack.post.post_tags import Tag
from transports.slack.post.rewrite import DraftMessage

log = logging.getLogger(__name__)

START, APPEND, STOP = "chat.startStream", "chat.appendStream", "chat.stopStream"

ROTATE_S, ROTATE_BYTES = 240.0, 9_000

EXPIRED, STOPPED, FULL = "message_not_in_streaming_state", "stopped_by_user", "msg_too_long"


@dataclass(slots=True)
class Live:
    """A message of the draft. ``sure``: it shows exactly ``text``; ``stale``: that text was withdrawn."""

    ts: str
    started_at: float
    text: str = ""
    size: int = 0
    open: bool = True
    sure: bool = True
    stale: bool = False

    @property
    def message(self) -> DraftMessage:
        return DraftMessage(self.ts, "stream" if self.open else "post", self.text if self.sure else "")


class NativeStream:
    """``to`` are the ids of the person who sees it live and of their team. ``done``: it shows nothing more."""

    method = APPEND

    def __init__(self, calls: DraftCalls, thread: ThreadId, to: tuple[str, str], links: Links) -> None:
        self.barred: Literal["", "turn", "workspace"] = ""
        self.lives: list[Live] = []
        self._calls, self._thread, self._to, self._links = calls, thread, to, links
        self._script, self._running = Script(links), RunningTools()
        self._cards = True
        self._mute = False
        self._retire = False  # the open message is to be stopped
        self._fences = Fences()

    @property
    def done(self) -> bool:
        return self._mute or bool(self.barred)

    @property
    def _open(self) -> Live | None:
        return self.lives[-1] if self.lives and self.lives[-1].open else None

    def say(self, delta: str) -> None:
        self._script.say(delta)

    def reset(self) -> None:
        """Withdraw the step's text: a message that shows some of it is stopped, and written over later."""
        self._script.begin()
        if (live := self._open) and live.text:
            live.stale = self._retire = True

    def started(self, tool: ToolStarted) -> None:
        self._script.pause()
        if self._cards and (card_id := self._running.started(tool)):
            self._script.card(Card(card_id, inert(tool_label(tool), self._links), "in_progress"))

    def finished(self, tool: ToolFinished) -> None:
        if found := self._running.finished(tool):
            card_id, start = found
            title = inert(tool_label(start), self._links)
            self._script.card(Card(card_id, title, "complete" if tool.ok else "error"))

    def due(self, now: float) -> float:
        """Return when to make the next call."""
        if self._retire or self._script.has_text or self._script.has_cards:
            return now
        return self._open.started_at + ROTATE_S if self._open else math.inf

    async def flush(self) -> None:
        """Show as much of the new text and cards as fits."""
        now = anyio.current_time()
        live = self._open
        if live and (self._retire or now >= live.started_at + ROTATE_S) and not await self._stop(live):
            return
        live = self._open
        batch, whole = self._script.take(ROTATE_BYTES - (live.size if live else self._begun))
        if batch.pieces:
            await self._show(live, batch)
        elif not whole and not live:
            self._mute = True  # one word that fills a message: it cannot be cut safely
        if not whole:
            self._retire = True

    @property
    def _begun(self) -> int:
        return len(self._fences.seam[1])

    async def _show(self, live: Live | None, batch: Batch) -> None:
        try:
            if live is None:
                sent = await self._start(batch)
            else:
                sent = await self._append(live, batch)
        except SlackRefused as refused:
            self._script.put_back(batch)
            self._refused(live, refused, cards=batch.has_cards)
        except TransportUnavailable as error:
            self._lost(live, batch, error)
        except TransportRateLimited:
            self._script.put_back(batch)
        else:
            if sent:
                self._fences.feed(batch.text)
            else:
                self._script.put_back(batch)

    async def _start(self, batch: Batch) -> bool:
        before = self._fences.seam[1]
        where: dict[str, JsonValue] = {
            "thread_ts": self._thread.root,
            "recipient_user_id": self._to[0] or None,
            "recipient_team_id": self._to[1] or self._thread.workspace,
            "task_display_mode": "timeline" if self._cards else None,
        }
        answer = await self._send(START, batch, **where, **batch.arguments(before))
        if answer is None:
            return False
        if not (ts := string(answer, "ts")):
            raise TransportUnavailable(f"{START}: no ts in the answer", maybe_posted=True)
        text = before + batch.text
        self.lives.append(Live(ts, anyio.current_time(), text, batch.size + len(before)))
        return True

    async def _append(self, live: Live, batch: Batch) -> bool:
        live.sure = False  # until the answer is there
        try:
            answer = await self._send(APPEND, batch, ts=live.ts, **batch.arguments())
        except PostFailed as error:
            live.sure = not error.maybe_posted
            raise
        live.sure = True
        if answer is None:
            return False
        live.text += batch.text
        live.size += batch.size
        return True

    async def _send(self, method: str, batch: Batch, **arguments: JsonValue) -> Shape | None:
        """Make the call; cards alone only if the rate limit has a call to spare."""
        send = self._calls.call if batch.text.strip() else self._calls.try_call
        return await send(method, self._thread.channel, **arguments)

    async def _stop(self, live: Live) -> bool:
        """End the message; return False if that has to be tried again."""
        rest = "" if live.stale or live.text[-1:].isspace() else self._script.rest_of_word()
        last = rest + self._fences.seam[0]
        unfinished = Tag("", draft=True).metadata()
        channel = self._thread.channel
        try:
            await self._calls.call(STOP, channel, ts=live.ts, markdown_text=last or None, metadata=unfinished)
        except TransportRateLimited:
            self._script.put_back(Batch((rest,)))
            return False
        except SlackRefused as refused:  # Slack has ended it
            self._script.put_back(Batch((rest,)))
            self._mute = refused.error == STOPPED
        except TransportUnavailable as error:
            log.info("live.unknown: nobody knows whether a stream ended: %s", error)
            live.sure = False
        else:
            live.text += last
            self._fences.feed(rest)
        live.open = self._retire = False
        if live.stale:
            self._fences = Fences()
        return True

    def _refused(self, live: Live | None, refused: SlackRefused, *, cards: bool) -> None:
        if refused.error == FULL and live:
            self._retire = True
        elif refused.error == EXPIRED and live:
            live.open = False
        elif cards and refused.kind in ("shape", "other"):
            self._cards = False
            self._script.drop_cards()
        elif self.lives or refused.kind in ("place", "token", "gone"):
            self._mute = True
            if live and refused.error == STOPPED:
                live.open = False
        else:
            self.barred = "workspace" if refused.kind in ("unsupported", "scope") else "turn"
        log.info("live.refused: %s", refused, extra={"thread_id": str(self._thread)})

    def _lost(self, live: Live | None, batch: Batch, error: TransportUnavailable) -> None:
        """Handle a lost answer: *batch* may be out, so it is not shown again; the final text has it."""
        log.info("live.cut: %s", error, extra={"thread_id": str(self._thread)})
        if not error.maybe_posted:
            self._script.put_back(batch)
        elif live:
            self._retire = True
            self._fences.feed(batch.text)
        else:
            self._mute = True
