"""What the live part of the screen shows: events in, text out; no I/O.

Each thread has at most one live turn, and ``queued`` messages that were sent and have no turn yet. Events of another
message do not change the live turn. A line about a tool that has run waits for the next post of its thread, and is
printed above it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from threads.model import (
    Incoming,
    Outgoing,
    QuestionClosed,
    StagesChanged,
    Taken,
    TextDelta,
    TextReset,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    UsageCounted,
    Waiting,
)
from transports.base.text import without_controls
from transports.console.render import finished
from transports.shared.live.activity import RunningTools, tool_label, waiting_words

TAIL = 16_384
"""Stored characters of a draft: more than any screen shows. A block as long as that waits for the post."""

STOPPED = "\n\n(Stopped here.)\n\n"
BROKE_OFF = "What stands above broke off: the answer begins again."

MAX_TOOL_LINES = 200
"""Stored lines about tools: more than the steps of any turn."""


@dataclass(slots=True)
class LiveTurn:
    """A turn that runs. ``since`` and ``until`` are seconds of the caller's monotonic clock.

    ``text`` is that of this step, which may be taken back; ``before`` is that of the steps before. Neither has what
    is ``printed`` for good, and ``printed`` is that of this step. ``stages`` are those of a playbook.
    """

    message_id: str
    since: float
    before: str = ""
    text: str = ""
    printed: str = ""
    stages: str = ""
    tools: RunningTools = field(default_factory=RunningTools)
    waiting: Waiting | None = None
    until: float = 0.0

    def apply(self, event: TurnEvent, now: float) -> str:
        """Note an event of this turn. Returns a line that it leaves above the next post, or an empty text."""
        if not isinstance(event, TextReset | ToolFinished):
            self.waiting = None
        match event:
            case TextDelta(text):
                self.text = (self.text + without_controls(text))[-TAIL:]
            case TextReset():
                above, self.text, self.printed = self.printed, "", ""
                return BROKE_OFF if above else ""
            case StagesChanged():
                self.stages = event.text
            case Waiting(seconds=seconds):
                self.waiting, self.until = event, now + seconds
            case ToolStarted():
                self.before, self.text, self.printed = _joined(self.before, self.text)[-TAIL:], "", ""
                self.tools.started(event)
            case ToolFinished(ok=ok):
                if known := self.tools.finished(event):
                    return f"{_one_line(tool_label(known[1]))}{'' if ok else ': did not work'}"
            case _:
                pass
        return ""

    def take_finished(self) -> str:
        """Return what no further text changes, once: it is printed for good."""
        size = finished(self.text) if len(self.text) < TAIL else 0
        done, self.text = self.text[:size], self.text[size:]
        self.printed += done
        before, self.before = self.before, ""
        return _joined(before, done)

    def rest(self, answer: str) -> str:
        """Return what of an answer is not printed yet, above the notes that stand above all of it."""
        printed = self.printed.strip()
        notes, _, rest = without_controls(answer).partition(printed) if printed else ("", "", answer)
        return _joined(rest, notes)

    def status(self, now: float) -> str:
        if self.waiting:
            words = waiting_words(replace(self.waiting, seconds=self.until - now))
            return _one_line(words.removeprefix("is "))
        words = self.tools.words or ("answering" if self.text else "thinking")
        return f"{_one_line(words)}… {int(now - self.since)} s"


@dataclass(slots=True)
class ThreadView:
    """One thread. ``questions`` are the keys of those that are open.

    A stop gives back the ``dropped`` messages that waited. What was ``shown`` of an answer goes above the next post.
    ``used`` is the model of the newest answer, and what that has cost. It is ``recalled`` once what was said before
    is shown.
    """

    live: LiveTurn | None = None
    queued: dict[str, Incoming] = field(default_factory=dict)
    dropped: list[Incoming] = field(default_factory=list)
    shown: str = ""
    used: str = ""
    recalled: bool = False
    unread: int = 0
    tool_lines: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_TOOL_LINES))
    questions: set[str] = field(default_factory=set)

    @property
    def busy(self) -> bool:
        return self.live is not None or bool(self.queued)

    def apply(self, message_id: str, event: TurnEvent, now: float) -> None:
        is_live = self.live is not None and self.live.message_id == message_id
        match event:
            case Taken():
                pass
            case UsageCounted(model=model, cost_usd=cost):
                self.used = f"{model}, ${cost:.4f}" if cost else model
            case QuestionClosed(key=key):
                self.questions.discard(key)
            case TurnStarted():
                self.live = LiveTurn(message_id, now)
                self.queued.pop(message_id, None)
            case TurnSettled(outcome=outcome, shown=shown):
                if self.live and is_live:
                    shown = shown and _joined(self.live.before, self.live.text)
                    self.live = None
                self.questions.clear()
                self.shown += f"{shown}{STOPPED}" if shown else ""
                if (waited := self.queued.pop(message_id, None)) and outcome == "stopped":
                    self.dropped.append(waited)
            case _:
                self.live = self.live or LiveTurn(message_id, now)
                if self.live.message_id == message_id and (line := self.live.apply(event, now)):
                    self.tool_lines.append(line)


class View:
    """All threads of a session."""

    def __init__(self, first: str) -> None:
        self.threads: defaultdict[str, ThreadView] = defaultdict(ThreadView)
        self.switch_to(first)

    @property
    def thread(self) -> ThreadView:
        """The current thread."""
        return self.threads[self.current]

    def switch_to(self, name: str) -> None:
        self.current = name
        self.thread.unread = 0

    def add_post(self, name: str, reply_to: str, *, final: bool) -> None:
        """Note a printed post. If it is the *final* word on a message, the message's draft goes."""
        thread = self.threads[name]
        if final and thread.live and thread.live.message_id == reply_to:
            thread.live.before = thread.live.text = thread.live.printed = thread.live.stages = ""
        thread.unread += name != self.current

    def take_tool_lines(self, name: str) -> list[str]:
        """Return the lines about tools that wait in a thread, once."""
        lines = self.threads[name].tool_lines
        taken = list(lines)
        lines.clear()
        return taken

    def take_text(self, outgoing: Outgoing) -> str:
        """Return what to print of a post, below what was shown of an answer that was stopped, once."""
        thread = self.threads[outgoing.thread.root]
        text, thread.shown = thread.shown + outgoing.text, ""
        is_answer = outgoing.kind == "reply" and thread.live and thread.live.message_id == outgoing.reply_to
        return thread.live.rest(text) if thread.live and is_answer else text

    @property
    def draft(self) -> str:
        """The text of the current thread's answer so far."""
        live = self.thread.live
        return _joined(live.stages, live.before, live.text) if live else ""

    def status(self, now: float) -> str:
        """Return one line: the current thread and what it does, and the other threads with news."""
        parts = [self.current]
        if live := self.thread.live:
            parts.append(live.status(now))
        if queued := len(self.thread.queued):
            parts.append(f"{queued} waiting")
        others = sorted((name, thread) for name, thread in self.threads.items() if name != self.current)
        if unread := [f"{name} ({thread.unread})" for name, thread in others if thread.unread]:
            parts.append(f"unread: {', '.join(unread)}")
        if busy := [name for name, thread in others if thread.busy]:
            parts.append(f"busy: {', '.join(busy)}")
        return " | ".join(filter(None, [*parts, self.thread.used]))

    def listing(self, stored: Mapping[str, str]) -> str:
        """Return every thread of this session and the *stored* ones, one per line, with the words about each."""
        names = {}
        for name in [*sorted(self.threads), *(name for name in stored if name not in self.threads)]:
            thread = self.threads.get(name, ThreadView())
            unread = f" ({thread.unread} unread)" if thread.unread else ""
            names[name] = f"{'*' if name == self.current else ' '} {name}{unread}{' (busy)' * thread.busy}"
        width = max(map(len, names.values()))
        return "\n".join(
            f"{shown:<{width}}  {stored.get(name, '')}".rstrip() for name, shown in names.items()
        )


def _joined(*texts: str) -> str:
    return "\n\n".join(text.strip("\n") for text in texts if text.strip())


def _one_line(text: str) -> str:
    return " ".join(without_controls(text).split())
