"""What the live part of the screen shows: events in, text out; pure.

Each thread has at most one live turn, and ``queued`` ids that were sent and have none yet:

| event         | the thread's live turn becomes                          |
|---------------|---------------------------------------------------------|
| `TurnStarted` | a fresh one for this message                            |
| `TextDelta`   | the same with more text, waiting no longer              |
| `ThinkingDelta`| the same: its end is the sign that it goes on          |
| `TextReset`   | the same without the text of this step                  |
| `Waiting`     | the same, waiting until now + seconds                   |
| `Resumed`     | the same, waiting no longer                             |
| `ToolStarted` | the same, its text kept for good, the tool running      |
| `ToolFinished`| the same, the tool not running; a line about it is due  |
| `TurnSettled` | none; a queued message merely leaves the queue          |

Events of a message that is not the live one change nothing else. Only the tail of a text is held. A line about a
tool that has run is due until the next post of its thread, which it is printed above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import assert_never

from threads.model import (
    QuestionClosed,
    Resumed,
    Taken,
    TextDelta,
    TextReset,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    Waiting,
)
from transports.base.text import without_controls
from transports.shared.live.activity import doing

TAIL = 16_384
"""Characters of a draft that are held; more than any screen shows."""

MOST_DUE = 200
"""Lines about tools that are held; more than any turn may take steps."""


@dataclass(frozen=True, slots=True)
class Live:
    """A turn that runs. ``since`` and ``until`` are in the seconds of the caller's monotonic clock."""

    message_id: str
    since: float
    kept: str = ""
    text: str = ""
    tools: tuple[ToolStarted, ...] = ()
    waiting: Waiting | None = None
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """``due`` are lines about tools that ran, for the next post to be printed below."""

    live: Live | None = None
    queued: frozenset[str] = frozenset()
    unread: int = 0
    due: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()

    @property
    def busy(self) -> bool:
        return self.live is not None or bool(self.queued)


@dataclass(frozen=True, slots=True)
class View:
    current: str
    rooms: Mapping[str, Room] = field(default_factory=dict)

    @property
    def room(self) -> Room:
        return self.rooms.get(self.current, Room())


def went(view: View, name: str) -> View:
    """Turn to another thread."""
    return replace(_with(view, name, replace(view.rooms.get(name, Room()), unread=0)), current=name)


def said(view: View, message_id: str) -> View:
    """Note a message that was sent to the current thread."""
    return _with(view, view.current, replace(view.room, queued=view.room.queued | {message_id}))


def asked(view: View, name: str, key: str) -> View:
    """Note a question that was printed; it is open until `saw` is told otherwise."""
    room = view.rooms.get(name, Room())
    return _with(view, name, replace(room, asked=room.asked | {key}))


def posted(view: View, name: str, reply_to: str, *, final: bool) -> View:
    """Note what was printed for good; when it is the *final* word on a message, its draft has served."""
    room = view.rooms.get(name, Room())
    if final and room.live and room.live.message_id == reply_to:
        room = replace(room, live=replace(room.live, kept="", text=""))
    if name != view.current:
        room = replace(room, unread=room.unread + 1)
    return _with(view, name, room)


def saw(view: View, name: str, message_id: str, event: TurnEvent, now: float) -> View:
    """Note what happened in a turn."""
    room = view.rooms.get(name, Room())
    live = room.live
    match event:
        case TurnStarted():
            live = Live(message_id, now)
        case Taken():
            return view
        case QuestionClosed(key=key):
            return _with(view, name, replace(room, asked=room.asked - {key}))
        case TurnSettled():
            room = replace(room, asked=frozenset())
            live = None if live and live.message_id == message_id else live
        case _:
            live = live or Live(message_id, now)
            if live.message_id == message_id:
                due = (*room.due, *_ran(live, event))[-MOST_DUE:]
                room, live = replace(room, due=due), _after(live, event, now)
            return _with(view, name, replace(room, live=live))
    return _with(view, name, replace(room, live=live, queued=room.queued - {message_id}))


def took_due(view: View, name: str) -> tuple[View, tuple[str, ...]]:
    """Take the lines about tools that are due in a thread."""
    room = view.rooms.get(name, Room())
    return _with(view, name, replace(room, due=())), room.due


def draft(view: View) -> str:
    """Return the text of the current thread's answer so far."""
    live = view.room.live
    return live.kept + live.text if live else ""


def status(view: View, now: float) -> str:
    """Return one line: this thread and what it does, and which others want a look."""
    parts = [view.current]
    if live := view.room.live:
        parts.append(_doing(live, now))
    if queued := len(view.room.queued):
        parts.append(f"{queued} waiting")
    others = sorted((name, room) for name, room in view.rooms.items() if name != view.current)
    if unread := [f"{name} ({room.unread})" for name, room in others if room.unread]:
        parts.append(f"unread: {', '.join(unread)}")
    if busy := [name for name, room in others if room.busy]:
        parts.append(f"busy: {', '.join(busy)}")
    return " | ".join(parts)


def listing(view: View) -> str:
    """Return every thread of this session, one a line."""
    return "\n".join(
        f"{'*' if name == view.current else ' '} {name}"
        + (f" ({room.unread} unread)" if room.unread else "")
        + (" (busy)" if room.busy else "")
        for name, room in sorted(view.rooms.items())
    )


def _with(view: View, name: str, room: Room) -> View:
    return replace(view, rooms={**view.rooms, name: room})


def _after(
    live: Live,
    event: TextDelta | ThinkingDelta | TextReset | Waiting | Resumed | ToolStarted | ToolFinished,
    now: float,
) -> Live:
    match event:
        case TextDelta(text):
            return replace(live, text=(live.text + without_controls(text))[-TAIL:], waiting=None)
        case TextReset():
            return replace(live, text="")
        case Waiting(seconds=seconds):
            return replace(live, waiting=event, until=now + seconds)
        case ThinkingDelta() | Resumed():
            return replace(live, waiting=None)
        case ToolStarted():
            kept = (live.kept + live.text)[-TAIL:]
            return replace(live, kept=kept, text="", tools=(*live.tools, event), waiting=None)
        case ToolFinished():
            started = _started(live, event)
            return replace(live, tools=tuple(tool for tool in live.tools if tool is not started))
        case _:
            assert_never(event)


def _started(live: Live, finished: ToolFinished) -> ToolStarted | None:
    """Return how a tool that finished was started: by its id, or by its name where it has none."""
    same = (tool for tool in live.tools if (tool.name, tool.call_id) == (finished.name, finished.call_id))
    return next(same, None)


def _ran(live: Live, event: TurnEvent) -> tuple[str, ...]:
    """Return the line about a tool that has run, in the words that other platforms use for it."""
    started = _started(live, event) if isinstance(event, ToolFinished) else None
    if started is None or not isinstance(event, ToolFinished):
        return ()
    return (f"{_one_line(doing(started))}{'' if event.ok else ': did not work'}",)


def _doing(live: Live, now: float) -> str:
    if live.waiting:
        return waiting_words(live.waiting, live.until - now)
    if live.tools:
        doing = ", ".join(f"{tool.name} {tool.summary}".rstrip() for tool in live.tools)
    else:
        doing = "answering" if live.text else "thinking"
    return f"{_one_line(doing)}… {int(now - live.since)} s"


def waiting_words(waiting: Waiting, left: float) -> str:
    """Return what a turn waits for, and for how long; *left* is in seconds."""
    reason = _one_line(waiting.reason)
    if waiting.seconds == inf:
        return f"waiting: {reason}"
    if waiting.seconds <= 0:
        return reason
    seconds = max(0, ceil(left))
    if not waiting.attempts:
        return f"{reason}, {seconds} s left"
    return f"{reason}, trying again in {seconds} s, {waiting.attempt} of {waiting.attempts}"


def _one_line(text: str) -> str:
    return " ".join(without_controls(text).split())
