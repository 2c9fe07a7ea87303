"""The lines of threads that came in live, so that a thread without a new one costs no call; pure.

| what comes in                               | the line                            |
|---------------------------------------------|-------------------------------------|
| a line of a thread                          | is heard                            |
| a turn takes it, or a command ends with it  | is taken: the bot has it            |
| the link comes up again                     | all are forgotten                   |

What came before the first heard line of a thread is not known here, nor are the lines of a thread that was quiet for
long while many others were not.
"""

from __future__ import annotations

from cachetools import LRUCache

from threads.model import ThreadId
from transports.shared.backfill.message_time import Scale

MOST_THREADS, MOST_LINES = 10_000, 20
"""Threads whose lines are known, and the newest lines of each."""


class HeardLines:
    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._taken: LRUCache[ThreadId, dict[str, bool]] = LRUCache(MOST_THREADS)

    def clear(self) -> None:
        """Forget all lines: others may be missed between them and the next ones."""
        self._taken.clear()

    def hear(self, thread: ThreadId, line: str) -> None:
        """Note a line of a thread, by its id. It may come again."""
        lines = self._taken.setdefault(thread, {})
        lines.setdefault(line, False)
        if len(lines) > MOST_LINES:
            del lines[next(iter(lines))]

    def take(self, thread: ThreadId, line: str) -> None:
        """Note that the bot has a line that was heard."""
        if line in (lines := self._taken.get(thread, {})):
            lines[line] = True

    def has_all_after(self, thread: ThreadId, line: str) -> bool:
        """Return whether the bot surely has everything that was said in a thread after this line."""
        lines = self._taken.get(thread, {})
        untaken = (other for other, taken in lines.items() if not taken)
        return line in lines and not any(self._scale.is_before(line, other) for other in untaken)
