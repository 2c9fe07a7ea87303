"""One thread: messages and outcomes, tool calls, pending messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic_core import from_json, to_json

from bot.reports.line_reader import Damage, records
from bot.store.reader import Reader, Thread, Wait
from threads.journal.records import Received, Record, Settled, record_adapter
from threads.log import LogEntry, entry_adapter
from threads.model import ToolCall, ToolResult, with_quoted
from threads.store.context import line_adapter

LAST_MESSAGES = 3
"""Messages that are read from a log's end to find the last one: its line may be damaged."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A thread in one line: how many ``messages`` it has, and the last one with how it ended."""

    thread: str
    at: str = ""
    messages: int = 0
    author: str = ""
    text: str = ""
    outcome: str = ""


def summaries(reader: Reader, threads: Sequence[Thread]) -> Iterator[Summary]:
    """Return the summary of each thread's log; only its end is parsed, the rest is counted.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    for thread, (lines, count) in zip(threads, reader.ends(threads, LAST_MESSAGES), strict=True):
        author = text = outcome = at = ""
        for entry in records(lines, entry_adapter(), Damage()):
            at = entry.at
            if entry.kind == "message":
                author, text, outcome = entry.author, with_quoted(entry.text, entry.quoted), ""
            elif entry.kind == "settled":
                outcome = entry.outcome
        changed_at = datetime.fromtimestamp(thread.changed_at, UTC).isoformat(timespec="milliseconds")
        yield Summary(thread.name, at or changed_at, count if at else 0, author, text, outcome)


def entries(
    reader: Reader,
    thread: Thread,
    damage: Damage,
    last: int | None = None,
    having: Sequence[bytes] = (),
    wait: Wait | None = None,
) -> Iterator[LogEntry]:
    """Return the lines of a thread's log, those of its last messages, or those that hold one of these pieces.

    With *wait* it never ends: whenever there is no more, it waits and looks again.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    return records(reader.log(thread, last, wait), entry_adapter(), damage, having)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool that was used for a message, with its arguments as JSON. ``at`` is when (UTC, ISO 8601), "" if unknown.

    ``call`` is the id of the call, ``reason`` what the model read of a failure.
    """

    tool: str
    arguments: str
    failed: bool = False
    at: str = ""
    call: str = ""
    reason: str = ""


@dataclass(slots=True)
class MadeCall:
    """A tool call, when it was made, and its result, if there is one."""

    call: ToolCall
    at: str
    result: ToolResult | None = None


def tool_calls(reader: Reader, thread: Thread) -> dict[str, list[MadeCall]]:
    """Return the tool calls of each message, as far as the conversation still holds them.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    found: dict[str, dict[tuple[str, str], MadeCall]] = {}
    about, open_ = "", dict[str, MadeCall]()
    for line in records(reader.conversation(thread), line_adapter(), Damage()):
        message = line.message
        about = message.source or about if message.role == "user" else about
        for block in message.blocks:
            match block:
                case ToolCall():  # what was summarised is in the archive too, under the same time
                    made = found.setdefault(about, {}).setdefault(
                        (block.id, message.at), MadeCall(block, message.at)
                    )
                    open_[block.id] = made
                case ToolResult() if block.call_id in open_:
                    open_[block.call_id].result = block
                case _:
                    pass
    return {about: list(made.values()) for about, made in found.items()}


def tools_used(reader: Reader, thread: Thread) -> dict[str, list[ToolUse]]:
    """Return what `tool_calls` finds, in short."""
    return {about: [_use(one) for one in made] for about, made in tool_calls(reader, thread).items()}


def _use(made: MadeCall) -> ToolUse:
    call, failed = made.call, made.result is not None and made.result.is_error
    arguments = call.malformed or to_json(call.arguments).decode()
    reason = _reason(made.result.content) if made.result and failed else ""
    return ToolUse(call.name, arguments, failed, made.at, call.id, reason)


def _reason(content: str) -> str:
    """Return why a call failed, from the result that the model read."""
    try:
        parsed = from_json(content)
    except ValueError:
        return content
    match parsed:
        case {"error": {"message": str(message)}}:
            return message
        case _:
            return content


def journal(reader: Reader, damage: Damage, having: Sequence[str] = (), thread: str = "") -> Iterator[Record]:
    """Return the journal's records, of all lines or of those with one of these words in them.

    At least those of *thread*, if it is given. Raises `threads.errors.NewerSchema` and OSError.
    """
    words = [*map(in_json, having)]
    return records(reader.journal(words, thread), record_adapter(), damage, words)


def in_json(word: str) -> bytes:
    """Return *word* as it stands inside a JSON string."""
    return to_json(word.encode("utf-8", "replace").decode())[1:-1]


def waiting(reader: Reader, thread: str) -> list[Received]:
    """Return the thread's messages that have no outcome yet, oldest first. Raises as `journal`."""
    found: dict[str, Received] = {}
    for record in journal(reader, Damage(), (thread,), thread):
        match record:
            case Received() if record.thread_id == thread:
                found[record.message_id] = record
            case Settled() if record.thread_id == thread:
                found.pop(record.message_id, None)
            case _:
                pass
    return list(found.values())
