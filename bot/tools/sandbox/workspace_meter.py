"""Keeps a command within its workspace's limits. It writes whenever it likes, so it is bounded from two sides.

| bound                         | by                                                | how exact                    |
|-------------------------------|---------------------------------------------------|------------------------------|
| how large one file gets       | the kernel: what is left, on top of the largest   | to the KiB (RLIMIT_FSIZE)    |
| all files, and their number   | counts while it runs; past a limit it is ended    | between two looks, it is not |
| files removed, but held open  | the same, once the disk has less room             | the same                     |

In a workspace that is full when it begins, the kernel lets it write no byte to any file; reading and deleting go on,
and it is ended only when there is more than before. Commands side by side in one workspace are measured each by
itself: one that does not write is ended too when the other goes past the limit. Nothing is ever deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bot.tools.files.quota import DiskUsage, Quota

from .resource_watch import free, removed_but_open

MOST_COUNTED = 200_000
"""Entries of a workspace that is full that are looked at, to see whether there are more of them."""

LESS_ROOM, AS_BEFORE = 2.0, 10.0
"""How many times as long as a count took it is not repeated: when the disk has less room by what is left, and else.

20,000 files take some 0.1 s, and all tools share one interpreter.
"""

NEARLY = 4096
"""Bytes that may be left when a file was cut off at the limit, which is set in blocks."""


class Meter:
    """Measures a workspace while one command runs in it. Blocking, and for one thread at a time.

    ``before`` is what the workspace held when the command began. Raises OSError when there is no workspace.
    """

    def __init__(self, quota: Quota, workspace: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._quota, self._workspace, self._clock = quota, workspace, clock
        began = clock()
        self.before = self.now = quota.measure(workspace, MOST_COUNTED)
        self._free = free(workspace)
        self._looked_at, self._took = clock(), clock() - began

    @property
    def file_size(self) -> int:
        """Return how large a file may become: nothing may be written once the workspace is full."""
        if self._left < NEARLY or self.before.entries > self._quota.max_entries or self.before.closed:
            return 0
        return self._left + self.before.largest

    def exceeded(self, root: int) -> bool:
        """Look, if it is time to; return whether the command has to end. *root* is its first process.

        It may go on in a workspace that was full before, as long as there is not more in it.
        """
        began = self._clock()
        try:
            less_room = self._less_room()
            if began - self._looked_at < self._took * (LESS_ROOM if less_room else AS_BEFORE):
                return False
            self.now = self._quota.measure(self._workspace, max(self._quota.max_entries, self.before.entries))
            if less_room and not self._over(self.now):
                held = removed_but_open(root, self._workspace.stat().st_dev)
                self.now = replace(self.now, size=self.now.size + held)
        except FileNotFoundError:  # it has removed its workspace, as it can where there are no walls
            return False
        self._looked_at, self._took = self._clock(), self._clock() - began
        return self._over(self.now)

    def told(self) -> str:
        """Return which limit is met, in a sentence; "" if none is."""
        with suppress(FileNotFoundError):
            at_worst, self.now = self.now, self._quota.measure(self._workspace, MOST_COUNTED)
            return self._told(self.now, "holds") or (
                self._told(at_worst, "held") if self._over(at_worst) else ""
            )
        return ""

    def _told(self, count: DiskUsage, holds: str) -> str:
        if count.closed:
            return "It holds a folder that nobody can look into, so nobody knows how full it is: `chmod u+rwx` it."
        has = f"It {holds} {count.size / 1e6:.1f} MB in {count.entries} files and folders"
        if count.size > self._quota.max_bytes - NEARLY:
            return f"{has}; its limit is {self._quota.max_bytes / 1e6:g} MB (limits.workspace_mb)."
        if count.entries >= self._quota.max_entries:
            return f"{has}; its limit is {self._quota.max_entries} of them (limits.workspace_files)."
        return ""

    @property
    def _left(self) -> int:
        """Return what the workspace had left when the command began."""
        return max(0, self._quota.max_bytes - self.before.size)

    def _less_room(self) -> bool:
        """Return whether the disk lost more since the command began than the workspace had left then."""
        size, entries = free(self._workspace)
        more = self._quota.max_entries - self.before.entries
        return size < self._free[0] - self._left or entries < self._free[1] - max(0, more)

    def _over(self, count: DiskUsage) -> bool:
        """Judge by the limits, or by what there was before, whichever is more."""
        return (
            count.size > max(self._quota.max_bytes, self.before.size)
            or count.entries > max(self._quota.max_entries, self.before.entries)
            or count.closed > self.before.closed
        )
