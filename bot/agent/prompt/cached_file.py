"""A text file that a person may edit at any time. It is read again only if it has changed.

| the file now                                 | then                                    |
|----------------------------------------------|-----------------------------------------|
| unchanged                                    | the cached text                         |
| changed                                      | read                                    |
| missing                                      | no text, which is not a problem         |
| not readable, or too large                   | the last good text, if any; logged once |
| empty or cut in the last 2 seconds           | the same: it is being written           |
"""

from __future__ import annotations

import codecs
import logging
import os
import stat
import time
from pathlib import Path

from threads.store.disk import Disk

log = logging.getLogger(__name__)

SETTLES_S = 2.0
"""Seconds until an empty file, or one that ends in the middle of a character, counts as complete."""

State = tuple[int, int, int, int]
"""Changes whenever the file does: inode, size, mtime and ctime."""


class Unreadable(Exception):
    """A file cannot be used; ``str(error)`` says why and names no path."""


class CachedFile:
    """Blocking; for any thread. ``problem`` is the problem of the last `read`, or blank. ``largest`` is in bytes."""

    def __init__(self, disk: Disk, path: Path, largest: int) -> None:
        self.problem = ""
        self._disk, self._path, self._largest = disk, path, largest
        self._last: tuple[State | None, str | None] = None, None

    def read(self) -> str | None:
        """Return the text, "" if the file is missing, None if it could never be read."""
        known, text = self._last
        try:
            about = self._path.stat()
            if state_of(about) != known:
                # A file that is written in place keeps its inode; a file that replaces it is complete.
                self._last = self._load(about, in_place=known is not None and known[0] == about.st_ino)
        except FileNotFoundError:
            self._last = None, ""
        except (OSError, Unreadable) as error:
            self._tell(str(error.strerror if isinstance(error, OSError) else error))
            return text
        self._tell("")
        return self._last[1]

    def _load(self, about: os.stat_result, *, in_place: bool) -> tuple[State, str]:
        """Return the file's state and text; *in_place* is whether it has the inode of the last good text."""
        if not stat.S_ISREG(about.st_mode):
            raise Unreadable("it is not a file")
        if about.st_size > self._largest:
            raise Unreadable(f"it is larger than {self._largest:,} bytes")
        state, data = state_of(about), self._disk.read(self._path)
        if len(data) > self._largest:
            raise Unreadable("it is growing")
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        text = decoder.decode(data)
        if "\0" in text:
            raise Unreadable("it is not text")
        cut = not data or bool(decoder.getstate()[0])
        being_written = state_of(self._path.stat()) != state
        if in_place and (being_written or (cut and time.time() - about.st_ctime < SETTLES_S)):
            raise Unreadable("it is being written")
        return state, text + decoder.decode(b"", final=True)

    def _tell(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning(
                "prompt.file_unread: %s: %s; its last good text counts, if there is one", self._path, problem
            )
        self.problem = problem


def state_of(about: os.stat_result) -> State:
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns
