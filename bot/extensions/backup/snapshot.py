"""Copies the data folder while the bot runs: no stop, no lock, and a restored copy keeps the promises.

The copy corresponds to one instant: when the journal is read. A restored copy is like the folder after a kill at that
instant, except that other files may be newer than the journal. Every start expects that, because a turn writes the
journal last. Hence the order:

| step           | why it is safe when the bot goes on between two steps                                             |
|----------------|---------------------------------------------------------------------------------------------------|
| marks          | before the journal: it holds whatever a mark counts as read; what came later is read again        |
| promises       | the journal, and `schedules.json` of the same instant: it is read before and after the journal    |
|                | until both are equal. An older one would lose a schedule, a newer one knows unjournaled messages  |
| conversations  | after the journal: they hold all that it has settled. Unsettled turns are replayed, as after a    |
|                | kill: an answer that is there is posted, not made again                                           |
| old ones, logs | after the conversations: what /new or a compaction moves is in one of the two files, or in both   |
| state          | after the journal: a used permission is never open again; a chosen model or a note stays          |
| money          | after the conversations: every call in the copy is counted; an open reservation counts in full    |
| audit, files   | last: they change nothing, and what a conversation mentions existed before it                     |

Every file is read through one descriptor up to its size at the start, and line files up to their last whole line. So
a file that is replaced meanwhile is the old one, whole, and nothing is torn that a kill would not tear.

What happened after that instant is not in the copy. Messages that were not settled are served again. Newer messages
are read from the platforms again, as far as `recovery.max_age_s` and their history go; those that were answered
meanwhile are found there and left alone (`bot.store.restored_answers`).
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import BaseModel

from bot.extensions.backup.archive import (
    ABOUT,
    BELOW,
    CONTENTS,
    VERSION,
    About,
    Contents,
    Sum,
    encoded_path,
    is_reserved,
    never,
)
from bot.store.layout import DATA_VERSION, KINDS, Step, files_of, kind_of
from threads.errors import BotError
from threads.model import WallClock
from threads.store.disk import PosixDisk

TRIES = 50
"""How often the journal is read until `schedules.json` did not change meanwhile; once is usual."""

BLOCK = 1_000_000
TAIL = 65_536

DEEPEST, LONGEST = 100, 3_000
"""Nested folders, and bytes of a path, beyond which files are left out: a longer path cannot be restored."""


class BackupFailed(BotError):
    """No backup was made; ``str(error)`` says why, and what to do."""


@dataclass(slots=True)
class Report:
    """What a backup holds. ``skipped`` lists what a rule left out, ``problems`` what could not be read."""

    file: Path
    at: datetime
    files: int = 0
    bytes: int = 0
    stored_bytes: int = 0
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


OnBytes = Callable[[int], None]


def back_up(data: Path, target: Path, now: WallClock, on_bytes: OnBytes = lambda _: None) -> Report:
    """Copy *data* to the file *target*, all or nothing, and report what is in it.

    Raises `BackupFailed`, and OSError when *target* cannot be written.
    """
    report = Report(target, now())
    for _ in copy_steps(data, report, on_bytes):
        pass
    return report


def copy_steps(data: Path, report: Report, on_bytes: OnBytes = lambda _: None) -> Iterator[Step]:
    """Do what `back_up` does and yield each step once it is copied."""
    target = report.file
    _refuse(data, target)
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            yield from _write(data, report, on_bytes, file)
            file.flush()
            os.fsync(file.fileno())
            report.stored_bytes = file.tell()
        partial.rename(target)
        PosixDisk().fsync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def size_of(data: Path) -> int:
    """Return about how many bytes a backup will read."""
    total = 0
    for folder, folders, names in os.walk(data):
        if _too_deep(_relative(data, Path(folder))):
            folders.clear()
        for name in names:
            with suppress(OSError):  # gone meanwhile: it is only an estimate
                path = Path(folder, name)
                total += 0 if never(_relative(data, path)) else path.lstat().st_size
    return total


def _refuse(data: Path, target: Path) -> None:
    if not (data / "journal.jsonl").is_file() and not (data / "threads").is_dir():
        raise BackupFailed(f"{data} holds no data of Threadfast; name the folder with --data")
    if (data / "restoring.json").exists():
        raise BackupFailed(f"{data} is being restored; start the bot, which finishes that")
    if target.exists():
        raise BackupFailed(f"{target} exists already; choose another name")
    if target.parent.resolve().is_relative_to(data.resolve()):
        raise BackupFailed(f"{target} would be in the data folder itself; choose a place outside of {data}")


def _write(data: Path, report: Report, on_bytes: OnBytes, file: IO[bytes]) -> Iterator[Step]:
    about = About(
        v=VERSION,
        threadfast=version("threadfast"),
        data_version=DATA_VERSION,
        at=report.at,
        schemas={kind.pattern: kind.schema for kind in KINDS if kind.schema},
    )
    with (
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        copy = _Copy(data, tar, report, on_bytes)
        copy.add(ABOUT, about)
        for step in Step:
            match step:
                case Step.NEVER:
                    continue
                case Step.PROMISES:
                    copy.promises()
                case Step.FILES:
                    copy.rest()
                case _:
                    for path in files_of(data, step):
                        copy.take(path)
            yield step
        copy.add(CONTENTS, Contents(files=copy.sums, skipped=report.skipped, problems=report.problems))


class _Copy:
    def __init__(self, data: Path, tar: tarfile.TarFile, report: Report, on_bytes: OnBytes) -> None:
        self.sums: dict[str, Sum] = {}
        self._data, self._tar, self._report, self._on_bytes = data, tar, report, on_bytes
        self._taken: set[PurePosixPath] = set()

    def add(self, name: str, document: BaseModel) -> None:
        content = document.model_dump_json().encode()
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o600
        self._tar.addfile(info, io.BytesIO(content))

    def promises(self) -> None:
        """Copy the journal, and the schedules as they were when it was read."""
        journal, schedules = self._data / "journal.jsonl", self._data / "schedules.json"
        for _ in range(TRIES):
            before = read_content(schedules)
            promised = read_content(journal)
            if read_content(schedules) == before:
                break
        else:
            raise BackupFailed("schedules.json changes all the time; try again in a moment")
        for path, content in ((journal, promised), (schedules, before)):
            if content is not None:
                whole = content[: content.rfind(b"\n") + 1] if path is journal else content
                self._store(_relative(self._data, path), _Source(io.BytesIO(whole), len(whole)))

    def take(self, path: PurePosixPath, folder: int | None = None) -> None:
        """Copy one file; *folder* is a descriptor of its folder."""
        if path in self._taken:
            return
        try:
            fd = os.open(
                self._data / path if folder is None else path.name,
                os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                dir_fd=folder,
            )
        except OSError as error:
            self._cannot_read(path, error)
            return
        with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                self._skip(path, "neither a file nor a folder")
            else:
                kind = kind_of(path)
                lines = kind is not None and kind.schema is not None and path.suffix == ".jsonl"
                try:
                    size = _whole_lines(fd, seen.st_size) if lines else seen.st_size
                except OSError as error:
                    self._cannot_read(path, error)
                    return
                self._store(path, _Source(file, size), seen)

    def rest(self) -> None:
        """Copy all that is not copied yet, folders too, following no link."""
        skip = lambda error: self._cannot_read(_relative(self._data, Path(error.filename)), error)  # noqa: E731
        for here, folders, names, fd in os.fwalk(self._data, onerror=skip, follow_symlinks=False):
            at = _relative(self._data, Path(here))
            folders[:] = [name for name in sorted(folders) if self._enters(at / name)]
            for name in folders:
                self._folder(at / name, fd)
            for name in sorted(names):
                if not never(at / name):
                    self.take(at / name, fd)

    def _enters(self, folder: PurePosixPath) -> bool:
        """Return whether a folder is copied; one that a rule leaves out is reported."""
        if never(folder / "x"):
            return False
        if is_reserved(folder):
            self._skip(folder, "a folder where a file has to be")
        elif _too_deep(folder):
            self._skip(folder, f"too deep: more than {DEEPEST} folders, or {LONGEST:,} bytes of path")
        else:
            return True
        return False

    def _folder(self, path: PurePosixPath, parent: int) -> None:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.lstat(path.name, dir_fd=parent).st_mode):
                self._skip(path, "a link")
                return
        info = tarfile.TarInfo(f"{BELOW}{path}")
        info.type, info.mode = tarfile.DIRTYPE, 0o700
        self._tar.addfile(info)

    def _store(self, path: PurePosixPath, source: _Source, seen: os.stat_result | None = None) -> None:
        self._taken.add(path)
        info = tarfile.TarInfo(f"{BELOW}{path}")
        info.size, info.mode = source.size, 0o600
        if seen is not None:
            info.mtime, info.mode = seen.st_mtime, 0o600 | (seen.st_mode & 0o100)
        source.on_bytes = self._on_bytes
        self._tar.addfile(info, source)  # type: ignore[arg-type]  # it is only read from
        self.sums[encoded_path(path)] = Sum(size=source.size, sha256=source.digest.hexdigest())
        self._report.files += 1
        self._report.bytes += source.size
        if source.fault:
            self._problem(path, source.fault)

    def _cannot_read(self, path: PurePosixPath, error: OSError) -> None:
        if error.errno == errno.ELOOP:
            self._skip(path, "a link")
        elif error.errno == errno.ENXIO:
            self._skip(path, "neither a file nor a folder")
        elif error.errno != errno.ENOENT:  # gone meanwhile: there is nothing to keep
            self._problem(path, error.strerror or str(error))

    def _skip(self, path: PurePosixPath, why: str) -> None:
        self._taken.add(path)
        self._report.skipped.append(f"{encoded_path(path)}: {why}")

    def _problem(self, path: PurePosixPath, why: str) -> None:
        self._report.problems.append(f"{encoded_path(path)}: {why}")


@dataclass(slots=True)
class _Source:
    """The first *size* bytes of a file, with their sum; bytes that cannot be read any more become zeros."""

    file: IO[bytes] | io.RawIOBase
    size: int
    fault: str = ""
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    on_bytes: OnBytes = lambda _: None

    def read(self, most: int) -> bytes:
        part = b""
        if not self.fault:
            try:
                part = self.file.read(most) or b""
            except OSError as error:
                self.fault = f"not read to its end: {error.strerror}"
        if len(part) < most:
            self.fault = self.fault or "became shorter while it was read"
            part = part.ljust(most, b"\0")
        self.digest.update(part)
        self.on_bytes(len(part))
        return part


def read_content(path: Path) -> bytes | None:
    """Return what a file holds, None if there is none. Raises OSError."""
    try:
        with path.open("rb") as file:
            return file.read(os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return None


def _whole_lines(fd: int, size: int) -> int:
    """Return how many of the first *size* bytes are whole lines."""
    end = size
    while end > 0:
        start = max(0, end - TAIL)
        if (last := os.pread(fd, end - start, start).rfind(b"\n")) >= 0:
            return start + last + 1
        end = start
    return 0


def _too_deep(path: PurePosixPath) -> bool:
    return len(path.parts) > DEEPEST or len(os.fsencode(path)) > LONGEST


def _relative(data: Path, path: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(data))
