"""Dead letters: messages set aside after repeated interruptions, and the state of those that were resubmitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bot.admin.reports.line_reader import Damage
from bot.admin.reports.thread import entries, in_json, journal
from bot.store.reader import Reader, Thread
from threads.journal.records import Received

_ENDED = b'"outcome":"dead_letter"'


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that ended as a dead letter, with what its person wrote.

    ``again`` is what became of it since: blank, ``in line``, or the outcome of its last resubmission.
    """

    at: str
    thread_id: str
    message_id: str
    author: str
    text: str
    again: str = ""


def dead_letters(
    reader: Reader, over: Callable[[Sequence[Thread]], Iterable[Thread]] = iter
) -> list[DeadLetter]:
    """Return the dead letters, oldest first; *over* iterates over all threads, and may show progress.

    Raises `threads.errors.NewerSchema` and OSError.
    """
    in_line = {
        (r.thread_id, r.message_id) for r in journal(reader, Damage(), ("~",)) if isinstance(r, Received)
    }
    found = [
        letter for thread in over(reader.holding([_ENDED])) for letter in _of_thread(reader, thread, in_line)
    ]
    return sorted(found, key=lambda letter: letter.at)


def _of_thread(reader: Reader, thread: Thread, in_line: set[tuple[str, str]]) -> list[DeadLetter]:
    ends = {
        e.message_id: e.at for e in entries(reader, thread, Damage(), having=[_ENDED]) if e.kind == "settled"
    }
    if not ends:
        return []
    recorded = [*entries(reader, thread, Damage(), having=[*map(in_json, ends)])]
    again = {_first(each): "in line" for name, each in in_line if name == thread.name}
    again |= {
        _first(e.message_id): e.outcome for e in recorded if e.kind == "settled" and "~" in e.message_id
    }
    return [
        DeadLetter(
            ends[e.message_id], thread.name, e.message_id, e.author, e.text, again.get(e.message_id, "")
        )
        for e in recorded
        if e.kind == "message" and e.message_id in ends
    ]


def _first(message_id: str) -> str:
    """Return the id of the message that this one is a resubmission of, blank if it is none."""
    return message_id.rpartition("~")[0]
