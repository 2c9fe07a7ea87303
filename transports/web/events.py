"""What happens in a thread, as the page is told; pure. Each event is an ``op``, the ``id`` of its message, and more.

Text comes as ``delta`` (more of it) and ``reset`` (what came since the last tool is taken back), of which the feed
makes drafts.

| op         | more                             | it says                                                      |
|------------|----------------------------------|--------------------------------------------------------------|
| message    | text, author, at, files          | a person sent it; ``replaces``: in the place of an earlier   |
|            |                                  | one, which is an earlier version now with all that followed  |
| edit       | text                             | its text is another now                                      |
| started    |                                  | its turn began                                               |
| draft      | part, changes                    | the answer so far, between two tools (`live_markdown`)        |
| thinking   |                                  | the model reasons                                            |
| wait       | reason, until, attempt, attempts | the turn waits, until an instant or for a person             |
| resumed    |                                  | the wait is over                                             |
| tool       | call, name, label, arguments     | a tool runs                                                  |
| tool_done  | call, ok, result                 | it ended                                                     |
| post       | key, kind, tree, choices, at     | something was posted, or replaces what had this key; ``same`` |
|            |                                  | blocks of an answer are shown already; ``text``: as written  |
| file       | key, name, size, address         | a file was posted; ``elsewhere``: another worker has it      |
| picture    | key, name, size, address         | a person sent it with their message                          |
| spent      | model, tokens, cached, cost      | what the answer used                                         |
| closed     | key, decision                    | a question was decided or answered, or time ran out          |
| settled    | outcome, code, tree              | the message has its outcome; posted: a notice without one    |
| told       | text                             | the reply to a press, which is no message                    |
| earlier    | count                            | so many messages are before these; it has no ``id``          |
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from pydantic import JsonValue

from threads.log import LogEntry
from threads.model import (
    Outgoing,
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
    UsageCounted,
    Waiting,
    message_key,
)
from transports.base.text import clean
from transports.web.feed import Event
from transports.web.markdown import tree

_PRESS = re.compile(
    r"\s*(?:[/!]?stop|[/!](?:approve|deny|answer)\s+q[0-9a-f]{8}\b.*)\s*\Z", re.IGNORECASE | re.DOTALL
)
_CHOICE = re.compile(r"\s*/model(?: \S+){1,2}\s*\Z")


def is_press(text: str) -> bool:
    """Return whether a message does what a button does: it stops, or answers a question by its id."""
    return _PRESS.match(text) is not None


def is_quiet(text: str) -> bool:
    """Return whether a message does what a button of the page does: its reply is told, and it is no message."""
    return is_press(text) or _CHOICE.match(text) is not None


def turn_event(message_id: str, event: TurnEvent, now: datetime) -> Event | None:
    """Return what the page is told of an event of a turn, None if nothing."""
    tell = _TOLD.get(type(event))
    return {**tell(event, now), "id": message_id} if tell else None


def _wait(event: Waiting, now: datetime) -> Event:
    timed = 0 < event.seconds < math.inf
    until = (now + timedelta(seconds=event.seconds)).isoformat() if timed else ""
    tries: Event = {"attempt": event.attempt, "attempts": event.attempts}
    return {"op": "wait", "reason": clean(event.reason), "until": until, **tries}


def _tool(event: ToolStarted) -> Event:
    names: Event = {"name": clean(event.name), "label": clean(event.label or event.name)}
    return {"op": "tool", "call": event.call_id or event.name, "arguments": clean(event.arguments), **names}


def _tool_done(event: ToolFinished) -> Event:
    return {
        "op": "tool_done",
        "call": event.call_id or event.name,
        "ok": event.ok,
        "result": clean(event.result),
    }


def _spent(event: UsageCounted) -> Event:
    return {
        "op": "spent",
        "model": event.model,
        "tokens": event.tokens,
        "cached": event.cached,
        "cost": event.cost_usd,
    }


def _closed(event: QuestionClosed) -> Event:
    return {"op": "closed", "key": event.key, "decision": event.decision(clean(event.by))}


def _settled(outcome: str, code: str, shown: str) -> Event:
    end: Event = {"op": "settled", "outcome": outcome, "code": code}
    return {**end, "tree": cast("JsonValue", tree(shown))} if shown else end


_TOLD: Mapping[type, Callable[[Any, datetime], Event]] = {
    Taken: lambda event, _: {
        "op": "message",
        "text": clean(event.text),
        "author": clean(event.author),
        **_replacing(event.replaces),
    },
    TurnStarted: lambda event, _: {"op": "started", "text": clean(event.text), "author": clean(event.author)},
    TextDelta: lambda event, _: {"op": "delta", "text": clean(event.text)},
    TextReset: lambda *_: {"op": "reset"},
    ThinkingDelta: lambda *_: {"op": "thinking"},
    Waiting: _wait,
    Resumed: lambda *_: {"op": "resumed"},
    ToolStarted: lambda event, _: _tool(event),
    ToolFinished: lambda event, _: _tool_done(event),
    UsageCounted: lambda event, _: _spent(event),
    QuestionClosed: lambda event, _: _closed(event),
    TurnSettled: lambda event, _: _settled(event.outcome, event.code, event.shown),
}


def _replacing(earlier: str) -> Event:
    return {"replaces": clean(earlier)} if earlier else {}


def message_event(
    message_id: str, text: str, author: str, at: str, files: Iterable[tuple[str, int]], replaces: str = ""
) -> Event:
    """Return what the page is told of a message that a person sent, with the names and sizes of its files."""
    names: list[JsonValue] = [{"name": clean(name), "size": size} for name, size in files]
    return {
        "op": "message",
        "id": message_id,
        "text": clean(text),
        "author": author,
        "at": at,
        "files": names,
        **_replacing(replaces),
    }


def post_event(outgoing: Outgoing, at: str) -> Event:
    """Return what the page is told of a post. The key of an answer is its message's id.

    One that answers no message stands for itself.
    """
    answers = outgoing.key == message_key(outgoing.thread, outgoing.reply_to)
    choices: list[JsonValue] = [{"label": clean(c.label), "command": c.command} for c in outgoing.choices]
    return {
        "op": "post",
        "id": outgoing.reply_to or outgoing.key,
        "key": outgoing.reply_to if answers else outgoing.key,
        "kind": outgoing.kind,
        **_words(outgoing.kind, outgoing.text),
        "choices": choices,
        "at": at,
    }


def _words(kind: str, text: str) -> Event:
    words: Event = {"tree": cast("JsonValue", tree(text))}
    return {**words, "text": clean(text)} if kind == "reply" else words  # what its button copies


@dataclass(frozen=True, slots=True)
class Past:
    """Messages of a thread's log, each as its entries, and the tool calls of each by its id.

    ``earlier`` messages are before these.
    """

    messages: Sequence[Sequence[LogEntry]] = ()
    tools: Mapping[str, Sequence[ToolStarted | ToolFinished]] = field(default_factory=dict)
    earlier: int = 0


def history_events(past: Past) -> Iterator[Event]:
    """Yield what the page is told of a thread's log."""
    for entries in past.messages:
        if is_quiet(entries[0].text):
            continue
        for used in past.tools.get(entries[0].message_id, ()):
            told = _tool(used) if isinstance(used, ToolStarted) else _tool_done(used)
            yield {**told, "id": entries[0].message_id}
        stopped = entries[-1].outcome == "stopped"
        shown = next((one.text for one in entries if stopped and one.kind == "reply"), "")
        for entry in entries:
            for event in _of_entry(entry, shown):
                yield {**event, "id": entry.message_id}
    yield {"op": "earlier", "count": past.earlier}


def _of_entry(entry: LogEntry, shown: str) -> Iterator[Event]:
    match entry.kind:
        case "message":
            said = entry.message_id, entry.text, entry.author, entry.at, entry.files
            yield message_event(*said, entry.replaces)
        case "settled":
            if entry.spent:
                yield _spent(entry.spent)
            yield _settled(entry.outcome, entry.code, shown)
        case "reply" if shown:
            pass  # it is told with the outcome
        case kind:
            key = entry.closed.key if entry.closed else entry.message_id
            post: Event = {"op": "post", "key": key, "kind": kind, "choices": [], "at": entry.at}
            yield {**post, **_words(kind, entry.text)}
            if entry.closed:
                yield _closed(entry.closed)


def in_order(events: Sequence[Event]) -> list[Event]:
    """Return the events by when their messages were sent: a log has these by when they ended.

    What is not known to have been sent, as after a restart, is newest.
    """
    sent = {
        str(event["id"]): str(event["at"]) for event in events if event["op"] == "message" and event.get("at")
    }
    return sorted(events, key=lambda event: (event.get("id") not in sent, sent.get(str(event.get("id")), "")))
