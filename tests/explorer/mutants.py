"""Bugs, planted for the time of a test: each is a mistake that somebody has shipped, and the explorer must find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from threads import log
from threads.journal import journal, records
from threads.journal.journal import FileJournal
from threads.store import checksummed_lines, context, disk
from threads.store.disk import Disk, File

from .model import MakeFolder, ModelDisk, ModelFile

Mutant = Callable[[], Any]


def _names(file: ModelFile) -> list[str]:
    return [path for path, node in file.disk.names.items() if node == file.node]


def _fsync_skips(suffix: str) -> Mutant:
    real = ModelFile.fsync

    def fsync(self: ModelFile) -> None:
        if not any(name.endswith(suffix) for name in _names(self)):
            real(self)

    return lambda: mock.patch.object(ModelFile, "fsync", fsync)


def _no_folder_fsync() -> Any:
    return mock.patch.object(ModelDisk, "fsync_folder", lambda self, path: None)


def _mkdir_not_durable() -> Any:
    def mkdir(self: ModelDisk, *paths: Path) -> None:
        for path in paths:
            for folder in reversed([p for p in (path, *path.parents[:-1]) if str(p) not in self.names]):
                self.perform(MakeFolder(str(folder)))

    return mock.patch.object(ModelDisk, "mkdir", mkdir)


@contextmanager
def _replacing(replace_file: Callable[[Disk, Path, bytes], None]) -> Iterator[None]:
    def replacing(on: Disk, path: Path, data: bytes, new: bool = False) -> None:
        if new:
            on.mkdir(path.parent)
        replace_file(on, path, data)

    with (
        mock.patch.object(journal, "replace_file", replacing),
        mock.patch.object(context, "replace_file", replacing),
        mock.patch.object(disk, "replace_file", replacing),
    ):
        yield


def _rename_first(on: Disk, path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        file = on.create(temporary)
    except FileNotFoundError:
        on.mkdir(path.parent)
        file = on.create(temporary)
    on.rename(temporary, path)
    disk.write_all(file, data)
    file.fsync()
    on.fsync_folder(path.parent)


def _unlink_first(on: Disk, path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    disk.write_new(on, temporary, data)
    with suppress(FileNotFoundError):
        on.unlink(path)
    on.rename(temporary, path)
    on.fsync_folder(path.parent)


def _append(on: Disk, path: Path, data: bytes) -> None:
    file = on.append(path)
    disk.write_all(file, data)
    file.fsync()
    on.fsync_folder(path.parent)


def _in_place(on: Disk, path: Path, data: bytes) -> None:
    try:
        on.truncate(path, 0)
    except FileNotFoundError:
        on.mkdir(path.parent)
    _append(on, path, data)


def _open_goes_on(self: FileJournal, data: bytes) -> None:
    """Go on in the file that was found, torn tail or not."""
    self.close()
    if str(self._path) not in self._disk.names:  # type: ignore[attr-defined]
        disk.replace_file(self._disk, self._path, data)
    self._file = self._disk.append(self._path)
    self._grown = len(data)


def _open_trusts_the_cache(self: FileJournal, data: bytes) -> None:
    """Cut the torn tail, but take what is there for durable."""
    self.close()
    try:
        found = self._disk.read(self._path)
    except FileNotFoundError:
        found = None
    if found != data:
        disk.replace_file(self._disk, self._path, data)
    self._file = self._disk.append(self._path)
    self._grown = len(data)


def _keeps_old_descriptor(self: FileJournal, data: bytes) -> None:
    old = self._file
    disk.replace_file(self._disk, self._path, data)
    self._file = old or self._disk.append(self._path)
    self._grown = len(data)


def _fsync_again(self: FileJournal, data: bytes) -> None:
    if self._file is None:
        self._compact()
    assert self._file is not None
    disk.write_all(self._file, data)
    try:
        self._file.fsync()
    except OSError:
        self._file.fsync()


def _goes_on_after_a_failure(self: FileJournal, data: bytes) -> None:
    if self._file is None:
        self._compact()
    assert self._file is not None
    disk.write_all(self._file, data)
    self._file.fsync()


async def _duplicate_at_once(self: FileJournal, key: str) -> bool:
    return key in self._receiving or self.ledger.knows(key)


async def _deaf_to_errors(self: FileJournal, batch: Any) -> None:
    await batch.done.wait()


def _archive_empties_first(self: context.ContextFile) -> None:
    try:
        data = self._disk.read(self._path)
    except FileNotFoundError:
        return
    disk.replace_file(self._disk, self._path, b"")
    _append(self._disk, self._path.with_name("context.old.jsonl"), data)


def _archive_glues(self: context.ContextFile) -> None:
    try:
        data = self._disk.read(self._path)
    except FileNotFoundError:
        return
    _append(self._disk, self._path.with_name("context.old.jsonl"), data)
    disk.replace_file(self._disk, self._path, b"")


def _only_looks(on: Disk, path: Path) -> None:
    on.tail(path, 1)


def _writes_once(file: File, data: bytes) -> None:
    file.write(data)


def _split_like_text(data: bytes) -> checksummed_lines.Scan:
    """Take U+2028 for the end of a line."""
    parts = [part.encode() for part in data.decode("utf-8", "replace").splitlines()]
    return checksummed_lines.Scan(
        [part for part in parts if checksummed_lines.intact(part)], [], b"", len(data)
    )


def _forgets_owed(self: records.Ledger) -> Iterator[records.Record]:
    yield from self.settled.values()


def _no_crc(line: bytes) -> bool:
    return b',"crc":"' in line


_patch = mock.patch.object

MUTANTS: Mapping[str, tuple[str, Mutant]] = {
    "no file fsync before the rename": ("context, weak", _fsync_skips(".tmp")),
    "no folder fsync after the rename": ("context, weak", _no_folder_fsync),
    "acknowledged before the fsync": ("journal, ordered", _fsync_skips("journal.jsonl")),
    "the folder of a new thread is not durable": ("context, weak", _mkdir_not_durable),
    "rename before write": ("context, ordered", lambda: _replacing(_rename_first)),
    "the old file unlinked before the rename": ("context, ordered", lambda: _replacing(_unlink_first)),
    "rewritten in place": ("context, ordered", lambda: _replacing(_in_place)),
    "the journal's torn tail stays": (
        "journal, ordered",
        lambda: _patch(FileJournal, "_replace", _open_goes_on),
    ),
    "a killed process's writes taken for durable": (
        "journal, ordered",
        lambda: _patch(FileJournal, "_replace", _open_trusts_the_cache),
    ),
    "the log's torn tail stays": ("log, ordered", lambda: _patch(log, "repair_tail", _only_looks)),
    "compaction goes on in the old file": (
        "journal, growing, ordered",
        lambda: _patch(FileJournal, "_replace", _keeps_old_descriptor),
    ),
    "a failed fsync tried again": (
        "journal, n-th fails, ordered",
        lambda: _patch(FileJournal, "_write", _fsync_again),
    ),
    "writing on after a failed write": (
        "journal, n-th fails, ordered",
        lambda: _patch(FileJournal, "_write", _goes_on_after_a_failure),
    ),
    "a failed write acknowledged": (
        "journal, n-th fails, ordered",
        lambda: _patch(FileJournal, "durable", _deaf_to_errors),
    ),
    "checksums not verified": ("journal, rot", lambda: _patch(checksummed_lines, "intact", _no_crc)),
    "compaction drops what is pending": (
        "journal, growing, ordered",
        lambda: _patch(records.Ledger, "records", _forgets_owed),
    ),
    "a duplicate acknowledged while the first is written": (
        "journal, ordered",
        lambda: _patch(FileJournal, "knows", _duplicate_at_once),
    ),
    "the conversation emptied before it is archived": (
        "context, ordered",
        lambda: _patch(context.ContextFile, "_archive", _archive_empties_first),
    ),
    "an archive glued to a torn one": (
        "context, ordered",
        lambda: _patch(context.ContextFile, "_archive", _archive_glues),
    ),
    "a short write taken for a whole one": (
        "journal, short writes, ordered",
        lambda: _patch(journal, "write_all", _writes_once),
    ),
    "damaged bytes thrown away": ("journal, ordered", lambda: _patch(journal, "set_aside", lambda *_: None)),
    "lines split like text": ("journal, ordered", lambda: _patch(journal, "scan", _split_like_text)),
}
"""Each bug with the case that must find it."""
