"""Lines of threads that came in and were not for the bot, so that a thread without any costs no call; pure.

| what comes in                         | the line                                                   |
|---------------------------------------|------------------------------------------------------------|
| a line of a thread                    | is passed over                                             |
| a turn takes it, or a command ends it | is not passed over any more, nor if it is delivered again  |
| too many threads                      | of the one that was quiet for longest, its time is kept    |

Only what comes in live is known. What was said while the link was down is nobody's to know here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from threads.model import ThreadId
from transports.shared.backfill.message_time import NEVER, Scale

MOST_THREADS, MOST_LINES = 10_000, 20
"""Threads whose lines are known, and the newest lines of each."""


@dataclass(slots=True)
class _Thread:
    passed: list[str] = field(default_factory=list)
    taken: str = ""


class PassedLines:
    def __init__(self, scale: Scale, most: int = MOST_THREADS) -> None:
        self._scale, self._most = scale, most
        self._threads: dict[ThreadId, _Thread] = {}
        self._forgotten = NEVER

    def hear(self, thread: ThreadId, line: str) -> None:
        """Note a line of a thread, by its id."""
        known = self._move_to_end(thread)
        if line != known.taken and line not in known.passed:
            known.passed = sorted([*known.passed, line], key=self._scale.order)[-MOST_LINES:]

    def take(self, thread: ThreadId, line: str) -> None:
        """Note that a line is the bot's to answer."""
        known = self._move_to_end(thread)
        known.taken, known.passed = line, [other for other in known.passed if other != line]

    def any_after(self, thread: ThreadId, line: str) -> bool:
        """Return whether a line may have been passed over in the thread after that one."""
        known = self._threads.get(thread)
        newest = (known.passed or [NEVER])[-1] if known else self._forgotten
        return self._scale.is_before(line, newest)

    def _move_to_end(self, thread: ThreadId) -> _Thread:
        known = self._threads.pop(thread, None) or _Thread([self._forgotten])
        self._threads[thread] = known
        if len(self._threads) > self._most:
            quiet = self._threads.pop(next(iter(self._threads)))
            self._forgotten = self._scale.later(self._forgotten, (quiet.passed or [NEVER])[-1])
        return known
