"""Reads the store of one machine: the files of a data folder. A `bot.store.reader.Reader`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from bot.reports.line_reader import BLOCK, Damage, lines_from, lines_of, records
from bot.reports.links import linked
from bot.reports.workspace_files import copy_files, files_of
from bot.store.reader import LAST, Lines, Thread, Wait, WorkspaceFile
from threads.model import ThreadId
from threads.store.data_folder import thread_folder

END = 1 << 16
"""Bytes of a log's end that hold its last message, most of the time."""
FURTHER = 16
"""The factor by which the search is enlarged if they do not."""

_MESSAGE = b'"kind":"message"'
"""As it stands in a log, and in no text: a quotation mark is written ``\\"`` there."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A thread's folder ``at`` a path; ``changed_at`` (seconds since 1970) is when its log was last written."""

    at: str | Path
    """In text if there are thousands of them."""
    changed_at: float = 0.0

    @property
    def path(self) -> Path:
        return Path(self.at)

    @property
    def name(self) -> str:
        """The thread's id; one that was too long for a folder stays shortened."""
        transport, slug = os.fspath(self.at).split("/")[-2:]
        return ":".join(unquote(part) for part in (transport, *slug.split("~")))


class FileReader:
    """Reads the files below *data*. Nothing is repaired."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def threads(self, place: str = "") -> list[Folder]:
        """Only the age of each log is read."""
        return _looked_at(p for p in self._paths() if not place or Folder(p).name.startswith(f"{place}:"))

    def find(self, wanted: str) -> list[Folder]:
        if link := linked(wanted):
            wanted = link[1]
        if wanted.count(":") >= 3:
            path = thread_folder(self._data, ThreadId.parse(wanted))
            if path.is_dir():
                return _looked_at([str(path)])
        last = wanted.rpartition(":")[2]
        names = ((path, path.rpartition("/")[2]) for path in self._paths())
        near = [(path, name) for path, name in names if last in (unquote(name.rpartition("~")[2]), name)]
        return [Folder(path) for path, name in near if Folder(path).name.endswith(wanted) or name == wanted]

    def holding(self, pieces: Sequence[bytes]) -> list[Folder]:
        def holds(path: str) -> bool:
            blocks = _blocks(f"{path}/log.jsonl", max(map(len, pieces)))
            return any(piece in block for block in blocks for piece in pieces)

        return _looked_at(filter(holds, self._paths()))

    def journal(self, having: Sequence[bytes] = (), _: str = "") -> Iterator[bytes]:
        return lines_of(self._data / "journal.jsonl", having)

    def log(self, thread: Thread, last: int | None = None, wait: Wait | None = None) -> Iterator[bytes]:
        with suppress(FileNotFoundError), _log(thread).open("rb") as file:
            if last is not None:
                _go_to_last(file, last)
            yield from lines_from(file)
            while wait:
                wait()
                yield from lines_from(file)

    def ends(self, threads: Sequence[Thread], last: int) -> Iterator[tuple[Iterator[bytes], int]]:
        return ((self.log(thread, last), self.count(thread)) for thread in threads)

    def saying(self, threads: Sequence[Thread], _: Sequence[str], __: int) -> Lines:
        yield from map(self.log, threads)

    def count(self, thread: Thread) -> int:
        return sum(block.count(_MESSAGE) for block in _blocks(_log(thread), len(_MESSAGE)))

    def conversation(self, thread: Thread) -> Iterator[bytes]:
        for name in ("context.old.jsonl", "context.jsonl"):
            yield from lines_of(thread.path / name)

    def files(self, thread: Thread) -> list[WorkspaceFile]:
        return files_of(thread.path)

    def copy_files(self, thread: Thread, target: Path) -> int:
        return copy_files(thread.path, target)

    def spending(
        self, month: str = "", having: Sequence[bytes] = (), until: str = LAST
    ) -> list[Iterable[bytes]]:
        from bot.budget.ledger import names_in, parts

        folder = self._data / "usage"
        found = [part for part in parts(names_in(folder)) if month <= part.month <= until]
        return [lines_of(folder / part.name, having) for part in found]

    def accounts(self) -> Iterator[tuple[object, ...]]:
        """Return them as the bot would count them at its next start."""
        from bot.budget.budgets import Budgets, record_adapter
        from bot.budget.ledger import names_in, parts, since_carried

        folder, budgets = self._data / "usage", Budgets()
        found, kind = parts(names_in(folder)), record_adapter()
        for record in since_carried(found, lambda p: [*records(lines_of(folder / p.name), kind, Damage())]):
            budgets.apply(record)
        return ((*key, *total) for key, total in budgets.totals.items())

    def audit(
        self, since: str = "", having: Sequence[bytes] = (), wait: Wait | None = None, until: str = LAST
    ) -> Iterator[bytes]:
        read: dict[Path, int] = {}
        while True:
            days = sorted((self._data / "audit").glob("????-??-??.jsonl"))
            for path in [day for day in days if since[:10] <= day.stem <= until][-2 if read else 0 :]:
                with path.open("rb") as file:
                    file.seek(read.get(path, 0))
                    yield from lines_from(file, having)
                    read[path] = file.tell()
            if wait is None:
                return
            wait()

    def _paths(self) -> Iterator[str]:
        for transport in _subfolders(self._data / "threads"):
            yield from _subfolders(transport)


def _log(thread: Thread) -> Path:
    return thread.path / "log.jsonl"


def _blocks(path: Path | str, longest: int) -> Iterator[bytes]:
    """Return a file's blocks, each with the end of the one before: so no piece up to the *longest* is cut in two."""
    end = b""
    with suppress(FileNotFoundError), open(path, "rb", buffering=0) as file:  # noqa: PTH123 - thousands
        while block := file.read(BLOCK):
            yield end + block
            end = (end + block)[1 - longest :]


def _subfolders(folder: Path | str) -> list[str]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def _looked_at(paths: Iterable[str]) -> list[Folder]:
    """Return threads by the age of their logs, newest first."""
    return sorted(map(_folder, paths), key=lambda folder: (-folder.changed_at, folder.at))


def _folder(path: str) -> Folder:
    for name in ("/log.jsonl", ""):  # nothing said yet, but a message may wait
        with suppress(FileNotFoundError):
            return Folder(path, os.stat(path + name).st_mtime)  # noqa: PTH116 - once for each of 100,000
    return Folder(path)


def _go_to_last(file: BinaryIO, messages: int) -> None:
    """Move to where the last *messages* messages begin, reading ever larger pieces from the end."""
    size, length = file.seek(0, os.SEEK_END), END
    while True:
        start = max(0, size - length)
        file.seek(start)
        piece = file.read(size - start)
        found = [match.start() for match in re.finditer(_MESSAGE, piece)][-messages:]
        if start == 0 or len(found) == messages:
            break
        length *= FURTHER
    file.seek(start + piece.rfind(b"\n", 0, found[0] if found else None) + 1)
