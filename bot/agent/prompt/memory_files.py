"""Memory in files that a person can read and edit. A changed file is read again, so an edit counts at once."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
from cachetools import LRUCache

from bot.agent.prompt.cached_file import CachedFile
from bot.agent.prompt.memory import LARGEST
from threads.store.disk import Disk, Offload, read_or_empty, replace_file

MOST_CACHED = 1_000
"""Files whose text is kept in memory."""

T = TypeVar("T")


class MemoryFiles:
    """A `bot.agent.prompt.memory.MemoryStore` below the folder *data*, with one writer at a time."""

    def __init__(self, disk: Disk, data: Path, offload: Offload) -> None:
        self._disk, self._data, self._offload = disk, data, offload
        self._writing = anyio.Lock()
        self._files = LRUCache[Path, CachedFile](MOST_CACHED)

    async def read(self, paths: Sequence[Path]) -> list[str | None]:
        files = [self._files.get(path) or self._new(path) for path in paths]
        return await self._offload(lambda: [file.read() for file in files])

    def _new(self, path: Path) -> CachedFile:
        self._files[path] = file = CachedFile(self._disk, self._data / path, LARGEST)
        return file

    async def change(self, path: Path, function: Callable[[str], tuple[str | None, T]]) -> T:
        async with self._writing:
            return await self._offload(self._change, self._data / path, function)

    def _change(self, path: Path, function: Callable[[str], tuple[str | None, T]]) -> T:
        text, result = function(self._text(path))
        if text is not None:
            replace_file(self._disk, path, text.encode("utf-8", "surrogateescape"))
        return result

    def _text(self, path: Path) -> str:
        try:
            about = path.stat()
        except FileNotFoundError:
            return ""
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise OSError(errno.EFBIG, f"not a file of at most {LARGEST} bytes", str(path))
        return read_or_empty(self._disk, path).decode("utf-8", "surrogateescape")
