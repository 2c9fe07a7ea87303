"""Dead letters: messages set aside after repeated interruptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bot.reports.line_reader import Damage
from bot.reports.thread import entries, in_json, waiting
from bot.store.reader import Reader, Thread

_ENDED = b'"outcome":"dead_letter"'


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that ended as a dead letter.

    ``again`` is the state of its resubmission: blank without one, ``in line``, or the outcome of the last one.
    """

    at: str
    thread_id: str
    message_id: str
    author: str
    text: str
    again: str = ""
    quoted: str = ""


def dead_letters(
    reader: Reader, over: Callable[[Sequence[Thread]], Iterable[Thread]] = iter
) -> list[DeadLetter]:
    """Return the dead letters, oldest first; *over* iterates over all threads, and may show progress.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    found = (letter for thread in over(reader.holding([_ENDED])) for letter in _in_thread(reader, thread))
    return sorted(found, key=lambda letter: letter.at)


def _in_thread(reader: Reader, thread: Thread) -> Iterator[DeadLetter]:
    settled = entries(reader, thread, Damage(), having=[_ENDED])
    ended_at = {entry.message_id: entry.at for entry in settled if entry.kind == "settled"}
    if not ended_at:
        return
    recorded = [*entries(reader, thread, Damage(), having=[*map(in_json, ended_at)])]
    again = {_original(one.message_id): "in line" for one in waiting(reader, thread.name)}
    again |= {_original(entry.message_id): entry.outcome for entry in recorded if entry.kind == "settled"}
    for entry in recorded:
        if entry.kind == "message" and (at := ended_at.get(entry.message_id)):
            state = again.get(entry.message_id, "")
            yield DeadLetter(at, thread.name, entry.message_id, entry.author, entry.text, state, entry.quoted)


def _original(message_id: str) -> str:
    """Return the id of the message that this one is a resubmission of, blank if it is not a resubmission."""
    return message_id.rpartition("~")[0]
