"""A reader that follows the bot's journal while the bot writes it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class Journal:
    """The bot's promises, read as they are written: when each message was taken, and which have their end."""

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._read = path, 0, 0
        self.taken: dict[str, float] = {}
        self.settled: set[str] = set()

    def look(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return
        if found.st_ino != self._file or found.st_size < self._read:  # it was written anew
            self._file, self._read = found.st_ino, 0
        if found.st_size == self._read:
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, _, _ = file.read().rpartition(b"\n")
        for line in filter(None, whole.split(b"\n")):
            self._hear(line)
        self._read += len(whole) + 1 if whole else 0

    def _hear(self, line: bytes) -> None:
        try:
            fields: dict[str, Any] = json.loads(line)
        except ValueError:
            return  # cut short by a death
        self.taken.setdefault(fields["message_id"], time.monotonic())
        if fields["kind"] == "settled":
            self.settled.add(fields["message_id"])
