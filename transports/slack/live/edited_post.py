"""A live answer as a post that is edited (chat.postMessage, chat.update): always the newest text of the step.

| state  | event                                                | next   |
|--------|------------------------------------------------------|--------|
| none   | a paragraph, or 1.5 s after the first word           | posted |
| none   | the post was refused, or its answer was lost         | silent |
| posted | the text is another one: it is written over          | posted |
| posted | Slack does not let it be edited                      | silent |
| posted | somebody deleted it                                  | silent, and forgotten |

A step's text is the text since the last tool began. It replaces the text before it, as the final text will. While
tools run, a line below says what they do.
"""

from __future__ import annotations

import logging
import math
from typing import Literal

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed, TransportRateLimited
from threads.model import StagesChanged, ThreadId, ToolFinished, ToolStarted
from transports.shared.live.activity import RunningTools
from transports.slack.api.api_errors import SlackRefused
from transports.slack.api.json_fields import string
from transports.slack.live.draft_calls import DraftCalls
from transports.slack.live.draft_content import inert
from transports.slack.live.native_stream import LivePost
from transports.slack.markdown.blocks import markdown_block
from transports.slack.markdown.links import Links
from transports.slack.markdown.split import plain, split_markdown
from transports.slack.post.post_tags import Tag

log = logging.getLogger(__name__)

POST, UPDATE = "chat.postMessage", "chat.update"

FIRST_AFTER_S = 1.5
MOST_SHOWN = 11_000
"""Characters of a step; a markdown block holds 12,000."""

NOTHING = "…"


class EditedPost:
    method = UPDATE

    def __init__(self, calls: DraftCalls, thread: ThreadId, links: Links) -> None:
        self.done = False
        self.unavailable: Literal["", "turn", "workspace"] = ""
        self.posts: list[LivePost] = []
        self._calls, self._thread, self._links = calls, thread, links
        self._running = RunningTools()
        self._text = self._stages = ""
        self._over = False  # the step's text is complete
        self._changed = False
        self._first_at = math.inf
        self._blocks = True

    def add_text(self, delta: str) -> None:
        if self._over:
            self._text, self._over = "", False
        if len(self._text) <= MOST_SHOWN:
            self._text += delta[: MOST_SHOWN + 1]
            self._touch()

    def reset(self) -> None:
        self._text, self._over = "", False
        self._touch()

    def started(self, tool: ToolStarted) -> None:
        self._running.started(tool)
        self._over = True
        self._touch()

    def finished(self, tool: ToolFinished) -> None:
        self._running.finished(tool)
        self._touch()

    def show_stages(self, event: StagesChanged) -> None:
        self._stages = event.text
        self._touch()

    def due(self, now: float) -> float:
        """Return when to make the next call."""
        if not self._changed:
            return math.inf
        if self.posts or "\n\n" in self._text.strip():
            return now
        return self._first_at + FIRST_AFTER_S

    async def flush(self) -> None:
        self._changed = False
        text = self._view()
        live = self.posts[0] if self.posts else None
        if not text or (live and live.confirmed and live.text == text):
            return
        try:
            await self._show(live, text)
        except TransportRateLimited:
            self._changed = True
        except SlackRefused as refused:
            self._refused(live, refused)
        except PostFailed as error:
            log.info("live.cut: %s", error, extra={"thread_id": str(self._thread)})
            self._changed = bool(live) or not error.maybe_posted
            self.done = live is None and error.maybe_posted  # one may be out: `Draft.lost` has it swept

    async def _show(self, live: LivePost | None, text: str) -> None:
        content: dict[str, JsonValue] = body(text, blocks=self._blocks)
        unfinished = Tag("", draft=True).metadata()
        if live is None:
            answer = await self._calls.call(
                POST,
                self._thread.channel,
                thread_ts=self._thread.root,
                metadata=unfinished,
                unfurl_links=False,
                unfurl_media=False,
                **content,
            )
            if ts := string(answer, "ts"):
                self.posts.append(LivePost(ts, anyio.current_time(), text, open=False))
            else:
                self.done = True
            return
        live.confirmed = False  # until the answer is there
        try:
            await self._calls.call(
                UPDATE, self._thread.channel, ts=live.ts, parse="none", link_names=False, **content
            )
        except PostFailed as error:
            live.confirmed = not error.maybe_posted
            raise
        live.confirmed, live.text = True, text

    def _refused(self, live: LivePost | None, refused: SlackRefused) -> None:
        log.info("live.refused: %s", refused, extra={"thread_id": str(self._thread)})
        if refused.kind == "shape" and self._blocks:
            self._blocks, self._changed = False, True
            return
        self.done = True
        if live and refused.kind in ("unsupported", "scope"):
            self.unavailable = "workspace"
        if live and refused.error == "message_not_found":
            self.posts.clear()

    def _view(self) -> str:
        text = "\n\n".join(filter(None, (self._stages, self._text.strip())))
        fitting = split_markdown(text[:MOST_SHOWN], self._links)
        texts = [fitting[0]] if fitting else []
        if len(fitting) > 1 or len(text) > MOST_SHOWN:
            texts.append(NOTHING)
        if words := self._running.words:
            texts.append(f"_{inert(words, self._links)}{NOTHING}_")
        return "\n\n".join(texts) or (NOTHING if self.posts else "")

    def _touch(self) -> None:
        self._changed = True
        if self._first_at == math.inf and (self._text.strip() or self._stages or self._running.words):
            self._first_at = anyio.current_time()


def body(text: str, *, blocks: bool = True) -> dict[str, JsonValue]:
    """Return safe *text* as the content of a post: Markdown, and plain text where blocks are not shown."""
    words: dict[str, JsonValue] = {"text": plain(text)}
    return words | {"blocks": [markdown_block(text)]} if blocks else words
