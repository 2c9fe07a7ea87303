"""A live answer in Slack's own streams (chat.startStream, appendStream, stopStream): text that only grows, and cards.

| state  | event                                              | next   |
|--------|----------------------------------------------------|--------|
| idle   | something to show, and the limits allow a start    | open   |
| idle   | the start is refused                               | silent |
| idle   | it is unknown whether the start was carried out    | silent |
| open   | more to show: it is appended                       | open   |
| open   | 240 s, 9,000 bytes, msg_too_long: it is stopped    | idle   |
| open   | an answer was lost, or its text was withdrawn      | idle   |
| open   | message_not_in_streaming_state                     | idle   |
| open   | stopped_by_user, or it cannot be written to        | silent |

Slack ends a stream about 5 min after its start, and refuses text beyond about 10.6 kB; neither is documented. A
stopped stream is a post like any other. A silent one shows nothing more until the final text. Where Slack has no
streams, in a channel or in the workspace, no other start is tried.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed, TransportRateLimited, TransportUnavailable
from threads.model import (
    StagesChanged,
    StageState,
    TextDelta,
    TextReset,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnStarted,
)
from transports.shared.live.activity import RunningTools, tool_label
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import Shape, string
from transports.slack.live.draft_calls import DraftCalls
from transports.slack.live.draft_content import Batch, Card, CardStatus, UnsentContent, inert
from transports.slack.live.latest_wins import MethodAvailability
from transports.slack.markdown.links import Links
from transports.slack.markdown.open_fences import Fences
from transports.slack.post.post_tags import Tag
from transports.slack.post.rewrite import DraftMessage

log = logging.getLogger(__name__)

START, APPEND, STOP = "chat.startStream", "chat.appendStream", "chat.stopStream"

CARD_STATUS: Mapping[StageState, CardStatus] = {
    "waiting": "in_progress",
    "running": "in_progress",
    "passed": "complete",
    "skipped": "complete",
    "failed": "error",
    "parked": "error",
}

ROTATE_S, ROTATE_BYTES = 240.0, 9_000

EXPIRED, STOPPED, FULL = "message_not_in_streaming_state", "stopped_by_user", "msg_too_long"


@dataclass(slots=True)
class LivePost:
    """A message of the draft. ``confirmed``: it shows exactly ``text``; ``withdrawn``: that text was withdrawn."""

    ts: str
    started_at: float
    text: str = ""
    size: int = 0
    open: bool = True
    confirmed: bool = True
    withdrawn: bool = False

    @property
    def message(self) -> DraftMessage:
        return DraftMessage(self.ts, self.open, self.text if self.confirmed else "")


class NativeStream:
    """``to`` are the ids of the person who sees it live and of their team. ``silent``: it shows nothing more."""

    def __init__(
        self,
        calls: DraftCalls,
        thread: ThreadId,
        to: tuple[str, str],
        links: Links,
        offer: MethodAvailability,
    ) -> None:
        self.posts: list[LivePost] = []
        self.silent = False
        self._calls, self._thread, self._to, self._links, self._offer = calls, thread, to, links, offer
        self._unsent, self._running = UnsentContent(links), RunningTools()
        self._stages = dict[str, tuple[StageState, int]]()
        self._cards = True
        self._must_stop = False  # whether the open message has to be stopped
        self._fences = Fences()

    @property
    def _open(self) -> LivePost | None:
        return self.posts[-1] if self.posts and self.posts[-1].open else None

    def feed(self, event: TurnEvent) -> None:
        """Take in an event of the turn. Never blocks; the text it holds is bounded."""
        match event:
            case TextDelta(text):
                self._unsent.add_text(text)
            case TextReset() | TurnStarted():
                self._withdraw()
            case ToolStarted():
                self._unsent.end_step()
                if self._cards and (card_id := self._running.started(event)):
                    self._add_card(card_id, event, "in_progress")
            case ToolFinished():
                if found := self._running.finished(event):
                    self._add_card(*found, "complete" if event.ok else "error")
            case StagesChanged():
                self._show_stages(event)
            case _:
                pass

    def _withdraw(self) -> None:
        """Withdraw the step's text: a message that shows some of it is stopped, and written over later."""
        self._unsent.restart()
        if (live := self._open) and live.text:
            live.withdrawn = self._must_stop = True

    def _add_card(self, card_id: str, tool: ToolStarted, status: CardStatus) -> None:
        self._unsent.add_card(Card(card_id, inert(tool_label(tool), self._links), status))

    def _show_stages(self, event: StagesChanged) -> None:
        """Show a card for each stage that runs or has ended. One that runs again gets another card."""
        for stage in event.stages:
            before, number = self._stages.get(stage.name, ("waiting", 0))
            if stage.state in (before, "waiting") or not self._cards:
                continue
            number += stage.state == "running"
            self._stages[stage.name] = stage.state, number
            self._unsent.add_card(Card(f"stage-{stage.name}-{number}", stage.name, CARD_STATUS[stage.state]))

    def due(self, now: float) -> float:
        """Return when to make the next call."""
        if self._must_stop or self._unsent.has_text or self._unsent.has_cards:
            return now
        return self._open.started_at + ROTATE_S if self._open else math.inf

    async def flush(self) -> None:
        """Show as much of the new text and cards as fits."""
        now = anyio.current_time()
        live = self._open
        if live and (self._must_stop or now >= live.started_at + ROTATE_S) and not await self._stop(live):
            return
        live = self._open
        batch, whole = self._unsent.take(ROTATE_BYTES - (live.size if live else len(self._fences.seam[1])))
        if batch.pieces:
            await self._show(live, batch)
        elif not whole and not live:
            self.silent = True  # one word that fills a message: it cannot be cut safely
        if not whole:
            self._must_stop = True

    async def _show(self, live: LivePost | None, batch: Batch) -> None:
        try:
            sent = await self._start(batch) if live is None else await self._append(live, batch)
        except SlackRefused as refused:
            self._unsent.put_back(batch)
            self._refused(live, refused, cards=batch.has_cards)
        except TransportUnavailable as error:
            self._lost(live, batch, error)
        except TransportRateLimited:
            self._unsent.put_back(batch)
        else:
            if sent:
                self._fences.feed(batch.text)
            else:
                self._unsent.put_back(batch)

    async def _start(self, batch: Batch) -> bool:
        before = self._fences.seam[1]
        where: dict[str, JsonValue] = {
            "thread_ts": self._thread.root,
            "recipient_user_id": self._to[0] or None,
            "recipient_team_id": self._to[1] or self._thread.workspace,
            "task_display_mode": "timeline" if self._cards else None,
        }
        if (answer := await self._send(START, batch, **where, **batch.arguments(before))) is None:
            return False
        if not (ts := string(answer, "ts")):
            raise TransportUnavailable(f"{START}: no ts in the answer", maybe_posted=True)
        self.posts.append(LivePost(ts, anyio.current_time(), before + batch.text, batch.size + len(before)))
        return True

    async def _append(self, live: LivePost, batch: Batch) -> bool:
        live.confirmed = False  # until the answer is there
        try:
            answer = await self._send(APPEND, batch, ts=live.ts, **batch.arguments())
        except PostFailed as error:
            live.confirmed = not error.maybe_posted
            raise
        live.confirmed = True
        if answer is None:
            return False
        live.text += batch.text
        live.size += batch.size
        return True

    async def _send(self, method: str, batch: Batch, **arguments: JsonValue) -> Shape | None:
        """Make the call. Cards without text go out only if the rate limit has a spare call."""
        send = self._calls.call if batch.text.strip() else self._calls.try_call
        return await send(method, self._thread.channel, **arguments)

    async def _stop(self, live: LivePost) -> bool:
        """End the message; return False if that has to be tried again."""
        last = self._fences.seam[0]
        unfinished = Tag("", draft=True).metadata()
        channel = self._thread.channel
        try:
            await self._calls.call(STOP, channel, ts=live.ts, markdown_text=last or None, metadata=unfinished)
        except TransportRateLimited:
            return False
        except SlackRefused as refused:  # Slack has ended it
            self.silent = refused.error == STOPPED
        except TransportUnavailable as error:
            log.info("live.unknown: nobody knows whether a stream ended: %s", error)
            live.confirmed = False
        else:
            live.text += last
        live.open = self._must_stop = False
        if live.withdrawn:
            self._fences = Fences()
        return True

    def _refused(self, live: LivePost | None, refused: SlackRefused, *, cards: bool) -> None:
        if refused.error == FULL and live:
            self._must_stop = True
        elif refused.error == EXPIRED and live:
            live.open = False
        elif cards and refused.kind in ("shape", "other"):
            self._cards = False
            self._unsent.drop_cards()
        elif self.posts or refused.kind in ("place", "token", "gone"):
            self.silent = True
            if live and refused.error == STOPPED:
                live.open = False
        else:
            self.silent = True
            self._offer.refused(refused, self._thread.channel)
        log.info("live.refused: %s", refused, extra={"thread_id": str(self._thread)})

    def _lost(self, live: LivePost | None, batch: Batch, error: TransportUnavailable) -> None:
        """Handle a lost answer: *batch* may be out, so it is not shown again; the final text has it."""
        log.info("live.cut: %s", error, extra={"thread_id": str(self._thread)})
        if not error.maybe_posted:
            self._unsent.put_back(batch)
        elif live:
            self._must_stop = True
            self._fences.feed(batch.text)
        else:
            self.silent = True
