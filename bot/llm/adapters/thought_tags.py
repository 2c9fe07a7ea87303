"""Tells thoughts that a server sends as text from the answer; pure.

A server that does not know how its model marks thoughts leaves the marks in the content: LM Studio, llama.cpp and
vLLM without a parser for the model. The template of some models writes the first mark itself, so that only the last
arrives (lmstudio-ai/lmstudio-bug-tracker#1569, #1495).

| state   | content                                              | is      | next    |
|---------|------------------------------------------------------|---------|---------|
| start   | blank                                                | kept    |         |
|         | the first mark of a thought                          |         | thought |
|         | other                                                | text    | text    |
| thought | up to its last mark                                  | thought | gap     |
| gap     | blank, marks of an answer                            | dropped |         |
|         | the first mark of a thought                          |         | thought |
|         | other                                                | text    | text    |
| text    | a last mark, if there was no mark before             | all before it was thought | gap |
|         | a first mark at the beginning of a line, up to its last mark | thought | gap |
|         | a mark in code or after a quote, other               | text    |         |

A thought that begins within the text and does not end is text: the answer is about marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_TAGS = (
    *("think", "thinking", "thought", "reason", "reasoning", "reflection", "antthinking", "seed:think"),
    *("mm:think", "ifm|think", "ifm|think_fast", "ifm|think_faster"),
    *("think:opensource", "think:6124c78e"),  # The tokenizer of Hunyuan adds a suffix.
)

THOUGHTS = {
    **{f"<{tag}>": f"</{tag}>" for tag in _TAGS},  # Qwen, DeepSeek, GLM, EXAONE, Seed-OSS and others
    "[think]": "[/think]",  # Magistral
    "◁think▷": "◁/think▷",  # Kimi
    "<|begin_of_thought|>": "<|end_of_thought|>",  # OpenThinker
    "<|start_thinking|>": "<|end_thinking|>",  # Command
    "<|inner_prefix|>": "<|inner_suffix|>",  # Apertus
    "<unused94>": "<unused95>",  # MedGemma
    "<|channel>thought": "<channel|>",  # Gemma
    "<|plamo:begin_think:plamo|>": "<|plamo:end_think:plamo|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",  # Kimi
    "<|content_thinking|>": "<|end_message|>",  # Inkling, here and below
    "<|message_model|><|content_thinking|>": "<|end_message|>",
    "to=self<|message|>": "<|eom|>",  # Muse, here and below
    "<|start|>assistant to=self<|message|>": "<|eom|>",
    "<|channel|>analysis<|message|>": "<|end|>",  # gpt-oss, here and below
    "<|channel|>commentary<|message|>": "<|end|>",
    "<|start|>assistant<|channel|>analysis<|message|>": "<|end|>",
    "<|start|>assistant<|channel|>commentary<|message|>": "<|end|>",
}
"""The first and the last mark of a thought, in lower case: servers and models write them in any.

docs/servers.md has their sources.
"""

ANSWER = (
    *("<|channel|>final<|message|>", "<|start|>assistant<|channel|>final<|message|>", "<|return|>"),
    *("<|start_response|>", "<|end_response|>", "<|begin_of_solution|>", "<|end_of_solution|>"),
    *("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    *(
        "<|content_text|>",
        "<|message_model|><|content_text|>",
        "<|end_message|>",
        "<|content_model_end_sampling|>",
    ),
    *("to=user<|message|>", "<|start|>assistant to=user<|message|>", "<|eot|>"),
)
"""Marks around an answer, which are not part of it."""

_ENDS = tuple(dict.fromkeys(THOUGHTS.values()))
_FIRST = re.compile("[" + "".join(map(re.escape, {mark[0] for mark in (*THOUGHTS, *ANSWER)})) + "]")
_LONGEST = max(map(len, (*THOUGHTS, *ANSWER)))
_FENCES = ("```", "~~~")
_FENCE = 3
QUOTES = frozenset("'\"")


def _pattern(marks: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, marks)), re.IGNORECASE)


def _beginnings(marks: Iterable[str]) -> frozenset[str]:
    """Return all that may become one of the marks, and the marks."""
    return frozenset(mark[:length] for mark in marks for length in range(len(mark) + 1))


_BEGIN = _pattern((*THOUGHTS, *ANSWER))
_MAY_BEGIN = _beginnings((*THOUGHTS, *ANSWER))
_ANY = _pattern((*THOUGHTS, *ANSWER, *_ENDS))
_MAY_BE_ANY = _MAY_BEGIN | _beginnings(_ENDS)
_END_OF = {end: (_pattern([end]), _beginnings([end])) for end in _ENDS}


@dataclass(slots=True)
class Split:
    """What some content is. With ``all_before`` the text of all earlier content was thought as well."""

    thought: str = ""
    text: str = ""
    all_before: bool = False


class ThoughtTags:
    """Splits the content of one answer, as it arrives in pieces of any size."""

    def __init__(self) -> None:
        self._state: Literal["start", "thought", "gap", "text"] = "start"
        self._held = ""
        self._end = ""
        self._marked = False
        self._within: list[str] | None = None
        self._place = _Place()

    def add(self, content: str, thoughts: list[str], texts: list[str]) -> Split:
        """Take the content, and add what it is to the thoughts and texts until now; return it."""
        split = self.feed(content)
        if split.all_before:
            thoughts.append("".join(texts))
            texts.clear()
        thoughts.append(split.thought)
        texts.append(split.text)
        return split

    def close(self, thoughts: list[str], texts: list[str]) -> None:
        """Add what was held back."""
        held = self.finish()
        thoughts.append(held.thought)
        texts.append(held.text)

    @property
    def thinking(self) -> bool:
        """Whether the whole answer is a thought that has not ended."""
        return self._state == "thought" and self._within is None

    def feed(self, content: str) -> Split:
        """Return what the content is, as far as it can be told by now."""
        split, rest = Split(), self._held + content
        self._held = ""
        while rest:
            rest = self._step(rest, split)
        return split

    def finish(self) -> Split:
        """Return what was held back, because a mark could have come of it."""
        held, self._held = self._held, ""
        if self._state != "thought":
            return Split(text=held)
        return Split(thought=held) if self._within is None else Split(text="".join((*self._within, held)))

    def _step(self, content: str, split: Split) -> str:
        """Add the beginning of the content to *split*, and return the rest."""
        match self._state:
            case "start" | "gap":
                return self._begin(content)
            case "thought":
                return self._think(content, split)
            case "text":
                return self._write(content, split)

    def _begin(self, content: str) -> str:
        begun = content.lstrip()
        if mark := _BEGIN.match(begun):
            self._take(mark[0].lower(), within=None)
            return begun[mark.end() :]
        if begun.lower() in _MAY_BEGIN:
            self._held = content if self._state == "start" else begun
            return ""
        kept, self._state = (content if self._state == "start" else begun), "text"
        return kept

    def _take(self, mark: str, within: list[str] | None) -> None:
        """Go on after a mark that begins a thought or an answer."""
        self._marked = True
        if mark in THOUGHTS:
            self._state, self._end, self._within = "thought", THOUGHTS[mark], within
        else:
            self._state = "gap"

    def _think(self, content: str, split: Split) -> str:
        pattern, may_end = _END_OF[self._end]
        if mark := pattern.search(content):
            split.thought += content[: mark.start()]
            self._state = "gap"
            return content[mark.end() :]
        thought = self._hold(content, may_end)
        split.thought += thought
        if self._within is not None:
            self._within.append(thought)
        return ""

    def _write(self, content: str, split: Split) -> str:
        mark = _ANY.search(content)
        shown = content[: mark.start()] if mark else self._hold(content, _MAY_BE_ANY)
        split.text += shown
        self._place.add(shown)
        if mark is None:
            return ""
        written, rest = mark[0], content[mark.end() :]
        name = written.lower()
        if not self._place.quoted:
            if name in THOUGHTS and self._place.begins_line:
                self._take(name, within=[written])
                return rest
            if name in ANSWER and self._marked:
                return rest
            if name in _ENDS and not self._marked:
                split.thought, split.text, split.all_before = split.text, "", True
                self._state, self._marked = "gap", True
                return rest
        self._marked = True
        split.text += written
        self._place.add(written)
        return rest

    def _hold(self, content: str, beginnings: frozenset[str]) -> str:
        """Hold back the end of the content if it is one of the *beginnings*; return the rest."""
        for first in _FIRST.finditer(content, max(0, len(content) - _LONGEST)):
            at = first.start()
            if content[at:].lower() in beginnings:
                self._held = content[at:]
                return content[:at]
        return content


@dataclass(slots=True)
class _Place:
    """Where in the text the next character stands.

    ``line`` are the first characters of its line that are not blank, ``ticks`` the backticks in that line.
    """

    line: str = ""
    ticks: int = 0
    fenced: bool = False
    last: str = ""

    @property
    def begins_line(self) -> bool:
        return not self.line

    @property
    def quoted(self) -> bool:
        """Whether it stands in code, or after a quotation mark."""
        return self.fenced or self.ticks % 2 == 1 or self._opens_fence or self.last in QUOTES

    @property
    def _opens_fence(self) -> bool:
        return self.line in _FENCES

    def add(self, text: str) -> None:
        first, *others = text.split("\n")
        self._extend(first)
        for line in others:
            self.fenced ^= self._opens_fence
            self.line, self.ticks = "", 0
            self._extend(line)
        self.last = text[-1:] or self.last

    def _extend(self, text: str) -> None:
        if len(self.line) < _FENCE:
            self.line = (self.line + text).lstrip()[:_FENCE]
        self.ticks += text.count("`")
