"""The text and the tools of a turn so far, as the messages that show them. Pure.

A step's text is the text since the last tool began. It replaces the text before it, as the final text will. A line in
small print below it says what the turn does: "-# reading notes.md…".

    mode        content
    edits       the stages of a playbook, the text, in up to five messages, and the running tool
    progress    the stages of a playbook, the last eight tools and their results, no text
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from threads.model import (
    Resumed,
    StagesChanged,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnStarted,
    Waiting,
)
from transports.discord.markdown.render import MAX_CONTENT, NOTHING, live_parts, note, utf16_size
from transports.shared.live.activity import RunningTools, tool_label, waiting_words

Mode = Literal["edits", "progress"]

FIRST_AFTER_S = 1.5
"""Seconds from the first word to the first message, unless a paragraph is complete before."""

MOST_MESSAGES = 5
MOST_SHOWN = MOST_MESSAGES * MAX_CONTENT
"""Characters of a step that are shown; the rest comes with the final text."""

MOST_LINES = 8
DONE, FAILED = "✓", "✗"
THINKING = note("thinking…")


@dataclass(frozen=True, slots=True)
class DraftPage:
    """What one message shows: the model's ``text``, and a line ``footer`` about tools and waits."""

    text: str = ""
    footer: str = ""

    @property
    def content(self) -> str:
        return "\n".join(filter(None, (self.text, self.footer))) or NOTHING


class DraftContent:
    """``due`` is when to send the first message, on the clock of the times that `feed` gets."""

    def __init__(self, mode: Mode) -> None:
        self.due = math.inf
        self._mode = mode
        self._text = self._stages = ""
        self._complete = False  # the step's text is complete
        self._running = RunningTools()
        self._lines: dict[str, str] = {}
        self._waiting: Waiting | None = None

    def feed(self, event: TurnEvent, now: float) -> bool:
        """Take an event in; return whether the messages may have changed."""
        match event:
            case TextDelta(text):
                return self._mode == "edits" and self._add_text(text, now)
            case TextReset():
                self._text, self._complete = "", False
            case TurnStarted():
                self._text, self._stages, self._complete, self._waiting = "", "", False, None
                self._running.clear()
                self._lines.clear()
            case ToolStarted():
                self._complete, self.due = True, min(self.due, now)
                self._line(self._running.started(event), f"{tool_label(event)}{NOTHING}")
            case ToolFinished(ok=ok):
                if known := self._running.finished(event):
                    self._line(known[0], f"{tool_label(known[1])} {DONE if ok else FAILED}")
            case Waiting(seconds=seconds):
                self._waiting = event
                self.due = min(self.due, now) if seconds < math.inf else self.due
            case Resumed():
                self._waiting = None
            case StagesChanged():
                self._stages, self.due = event.text, min(self.due, now)
            case _:
                return False
        return True

    @property
    def pages(self) -> tuple[DraftPage, ...]:
        """Return the messages to show, at most five."""
        if self._mode == "progress":
            return self._progress
        shown = "\n\n".join(filter(None, (self._stages, self._text)))
        pages = [DraftPage(text) for text in live_parts(shown) if text != NOTHING]
        running = note(f"{self._running.words}{NOTHING}") if self._running.words else ""
        footer = self._waiting_note or running
        if not pages and self.due < math.inf:
            footer = footer or THINKING  # so that there is something to be stopped
        if len(pages) > MOST_MESSAGES or len(self._text) > MOST_SHOWN:
            footer = footer or NOTHING
        pages = pages[:MOST_MESSAGES] or ([DraftPage()] if footer else [])
        if footer:
            last = DraftPage(pages[-1].text, footer)
            pages[-1] = last if utf16_size(last.content) <= MAX_CONTENT else pages[-1]
        return tuple(pages)

    @property
    def _progress(self) -> tuple[DraftPage, ...]:
        lines = [*self._lines.values(), *filter(None, [self._waiting_note])][-MOST_LINES:]
        if self._stages:
            lines = [self._stages, *lines]
        while len(lines) > 1 and utf16_size("\n".join(lines)) > MAX_CONTENT:
            del lines[1 if self._stages else 0]
        return (DraftPage(footer="\n".join(lines)),) if lines else ()

    @property
    def _waiting_note(self) -> str:
        return note(waiting_words(self._waiting).removeprefix("is ")) if self._waiting else ""

    def _add_text(self, delta: str, now: float) -> bool:
        if self._complete:
            self._text, self._complete = "", False
        if len(self._text) > MOST_SHOWN:
            return False
        self._text += delta[: MOST_SHOWN + 1]
        if self.due > now and (text := self._text.lstrip()):
            self.due = now if "\n\n" in text else min(self.due, now + FIRST_AFTER_S)
        return True

    def _line(self, tool_id: str, words: str) -> None:
        self._lines[tool_id] = note(words)
        if len(self._lines) > MOST_LINES:
            del self._lines[next(iter(self._lines))]
