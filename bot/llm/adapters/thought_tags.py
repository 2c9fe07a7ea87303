"""Tells thoughts that a server sends as text from the answer; pure.

A server that does not know how its model marks thoughts leaves the tags in the content: LM Studio, llama.cpp and vLLM
without a parser for the model. The template of some models writes the first tag itself, so that only the last arrives
(lmstudio-ai/lmstudio-bug-tracker#1569, #1495).

| state   | content                                              | is      | next    |
|---------|------------------------------------------------------|---------|---------|
| start   | blank                                                | kept    |         |
|         | ``<think>``                                          |         | thought |
|         | other                                                | text    | text    |
| thought | up to ``</think>``                                   | thought | gap     |
| gap     | blank                                                | dropped |         |
|         | other                                                | text    | answer  |
| text    | ``</think>`` without a quote before it               | all before it was thought | gap |
|         | ``<think>``, or a quoted ``</think>``                | text    | answer  |
| answer  | everything                                           | text    |         |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"
QUOTES = frozenset("`'\"")


@dataclass(slots=True)
class Split:
    """What some content is. With ``all_before`` the text of all earlier content was thought as well."""

    thought: str = ""
    text: str = ""
    all_before: bool = False


class ThoughtTags:
    """Splits the content of one answer, as it arrives in pieces of any size."""

    def __init__(self) -> None:
        self._state: Literal["start", "thought", "gap", "text", "answer"] = "start"
        self._held = ""
        self._last = ""

    def feed(self, content: str) -> Split:
        """Return what the content is, as far as it can be told by now."""
        split, rest = Split(), self._held + content
        self._held = ""
        while rest:
            rest = self._step(rest, split)
        return split

    def finish(self) -> Split:
        """Return what was held back, because a tag could have come of it."""
        held, self._held = self._held, ""
        return Split(thought=held) if self._state == "thought" else Split(text=held)

    def _step(self, content: str, split: Split) -> str:
        """Add the beginning of the content to *split*, and return the rest."""
        match self._state:
            case "start":
                return self._start(content)
            case "thought":
                thought, tag, rest = content.partition(CLOSE)
                self._state = "gap" if tag else "thought"
                split.thought += thought if tag else self._hold(thought, CLOSE)
                return rest
            case "gap":
                rest = content.lstrip()
                self._state = "answer" if rest else "gap"
                return rest
            case "text":
                return self._look_for_end(content, split)
            case "answer":
                split.text += content
                return ""

    def _start(self, content: str) -> str:
        begun = content.lstrip()
        if begun != OPEN and OPEN.startswith(begun):
            self._held = content
            return ""
        self._state = "thought" if begun.startswith(OPEN) else "text"
        return begun.removeprefix(OPEN) if self._state == "thought" else content

    def _look_for_end(self, content: str, split: Split) -> str:
        before, tag, rest = content.partition(CLOSE)
        if OPEN in before or (tag and (before or self._last)[-1:] in QUOTES):
            self._state = "answer"
            return content
        if not tag:
            split.text += (shown := self._hold(content, OPEN, CLOSE))
            self._last = (self._last + shown)[-1:]
            return ""
        split.thought, split.text, split.all_before = split.text + before, "", True
        self._state = "gap"
        return rest

    def _hold(self, content: str, *tags: str) -> str:
        """Hold back the end of the content if a tag may begin there; return the rest."""
        at = content.rfind("<")
        if at < 0 or not any(tag.startswith(content[at:]) for tag in tags):
            return content
        self._held = content[at:]
        return content[:at]
