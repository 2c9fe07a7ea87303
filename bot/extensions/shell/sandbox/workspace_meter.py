"""Stops a command that exceeds its workspace's limits. A command writes at any time, so two things limit it.

| limit                             | set by                                              | precision               |
|-----------------------------------|-----------------------------------------------------|-------------------------|
| the size of one file              | the kernel: the space left, plus the largest file   | a KiB (RLIMIT_FSIZE)    |
| all files, and their number       | measurements while it runs; past a limit it stops   | it can pass between two |
| removed files that it holds open  | the same, once the disk has less space              | the same                |

In a workspace that is full at the start, the kernel lets it write no byte to any file; reading and deleting work. It
is stopped only when there is more than before. Two commands in one workspace are measured separately: when one passes
the limit, the other is stopped too. Nothing is ever deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bot.tools.files.quota import DiskUsage, Quota, measure_usage

from .resource_watch import free_space, removed_but_open

MAX_COUNTED = 200_000
"""Entries that are counted in a full workspace, to see whether their number grows."""

PAUSE, PAUSE_WHEN_LOW = 10.0, 2.0
"""Pauses between measurements, as multiples of the last one's duration; shorter once the disk lost what was left.

20,000 files take about 0.1 s, and all tools share one interpreter.
"""

BLOCK = 4096
"""Bytes that may be left when a file reached the limit, which is set in blocks."""


class Meter:
    """Measures a workspace while one command runs in it. Blocking, and for one thread at a time.

    ``before`` is the usage when the command began. Raises OSError if there is no workspace.
    """

    def __init__(self, quota: Quota, workspace: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._quota, self._workspace, self._clock = quota, workspace, clock
        began = clock()
        self.before = self.now = measure_usage(workspace, MAX_COUNTED)
        self._free = free_space(workspace)
        self._measured_at, self._duration = clock(), clock() - began

    @property
    def file_size(self) -> int:
        """Return how large a file may become: 0 once the workspace is full."""
        if self._left < BLOCK or self.before.entries > self._quota.max_entries or self.before.closed:
            return 0
        return self._left + self.before.largest

    def exceeded(self, root: int) -> bool:
        """Measure if it is time, and return whether the command must end. *root* is its first process.

        In a workspace that was full before, it may continue while there is not more in it.
        """
        began = self._clock()
        try:
            low = self._disk_is_low()
            if began - self._measured_at < self._duration * (PAUSE_WHEN_LOW if low else PAUSE):
                return False
            self.now = measure_usage(self._workspace, max(self._quota.max_entries, self.before.entries))
            if low and not self._over(self.now):
                removed = removed_but_open(root, self._workspace.stat().st_dev)
                self.now = replace(self.now, size=self.now.size + removed)
        except FileNotFoundError:  # without walls, a command can remove its workspace
            return False
        self._measured_at, self._duration = self._clock(), self._clock() - began
        return self._over(self.now)

    def limit_reached(self) -> str:
        """Return a sentence on the limit that is reached, or "" for none."""
        with suppress(FileNotFoundError):
            last, self.now = self.now, measure_usage(self._workspace, MAX_COUNTED)
            return self._describe(self.now, "holds") or (
                self._describe(last, "held") if self._over(last) else ""
            )
        return ""

    def _describe(self, usage: DiskUsage, verb: str) -> str:
        if usage.closed:
            return (
                "It holds a folder that cannot be opened, so nobody knows how full it is: `chmod u+rwx` it."
            )
        amount = f"It {verb} {usage.size / 1e6:.1f} MB in {usage.entries} files and folders"
        if usage.size > self._quota.max_bytes - BLOCK:
            return f"{amount}; its limit is {self._quota.max_bytes / 1e6:g} MB (limits.workspace_mb)."
        if usage.entries >= self._quota.max_entries:
            return f"{amount}; its limit is {self._quota.max_entries} of them (limits.workspace_files)."
        return ""

    @property
    def _left(self) -> int:
        """Return how many bytes the workspace had left when the command began."""
        return max(0, self._quota.max_bytes - self.before.size)

    def _disk_is_low(self) -> bool:
        """Return whether the disk lost more since the command began than the workspace had left."""
        size, entries = free_space(self._workspace)
        left = max(0, self._quota.max_entries - self.before.entries)
        return size < self._free[0] - self._left or entries < self._free[1] - left

    def _over(self, usage: DiskUsage) -> bool:
        """Compare with the limits, or with the usage before if that was more."""
        return (
            usage.size > max(self._quota.max_bytes, self.before.size)
            or usage.entries > max(self._quota.max_entries, self.before.entries)
            or usage.closed > self.before.closed
        )
