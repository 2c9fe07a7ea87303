"""A copy of the data folder while the bot runs: no stop, no lock, and what is restored from it keeps the promises.

The copy takes a while, and the bot goes on meanwhile. It corresponds to one instant: when the journal is read. A
restored copy is what a process leaves that is killed then, but that other files may be further on than the journal; a
journal that is behind is what every start expects, for in a turn it is written last. Hence the order:

| step           | why it is safe when the bot goes on between two steps                                             |
|----------------|---------------------------------------------------------------------------------------------------|
| marks          | before the journal: whatever a mark says was read is in it; what came later is read again         |
| promises       | the journal, and `schedules.json` as it was at that instant: read before and after, until both    |
|                | are the same. Older, a new schedule would be lost; newer, an occurrence that no journal knows     |
| conversations  | after: all that is settled in the journal is in them. What is there of turns that are not, their  |
|                | replay finds, as after a kill: an answer that is there is given, not made again                   |
| old ones, logs | after the conversations: what /new or a compaction takes out is in one of the two files, or both  |
| state          | after: a permission that was used is never open again; a model, a note, once chosen, stays so     |
| money          | after: every call of a turn that is in the copy is counted; a reservation without an end in full  |
| audit, files   | last: they change nothing; what a conversation speaks of was there before it                      |

Every file is read through one descriptor up to the size it had when it was opened, and ours of lines up to their last
whole line: one that is replaced meanwhile is the old one, whole. So nothing is torn but what a kill tears as well.

What happened after that instant is not in the copy. Messages that were not settled then are served again; those that
came after are read from the platforms once more, as far as `recovery.max_age_s` and their history go, and what was
answered meanwhile is found there and left alone (`bot.store.restored_answers`).
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO

from bot.store.archive import ABOUT, BELOW, CONTENTS, VERSION, About, Contents, Sum, encoded_path
from bot.store.layout import DATA_VERSION, KINDS, Step, found, is_reserved, kind_of, never
from threads.errors import BotError
from threads.store.disk import PosixDisk

TRIES = 50
"""How often the journal is read until `schedules.json` did not change meanwhile; once is the rule."""

BLOCK = 1_000_000
TAIL = 65_536

DEEPEST, LONGEST = 100, 3_000
"""Folders in one another, and bytes of a path, beyond which files are left out: a command may nest any number, and
what no path leads to cannot be restored."""

SPARSE_ABOVE = 1_000_000_000
"""Bytes above which a file that is mostly holes is left out: copying nothing would take hours."""


class BackupFailed(BotError):
    """No backup was made; ``str(error)`` says why, and what to do."""


@dataclass(slots=True)
class Report:
    """What a backup holds. ``skipped`` was left out by rule, ``problems`` is what could not be read, a line each."""

    file: Path
    at: datetime
    files: int = 0
    bytes: int = 0
    stored_bytes: int = 0
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


OnBytes = Callable[[int], None]


def back_up(
    data: Path, target: Path, now: Callable[[], datetime], on_bytes: OnBytes = lambda _: None
) -> Report:
    """Write a copy of *data* to *target*, all or nothing, and return what is in it.

    Raises `BackupFailed`, and OSError when *target* cannot be written.
    """
    steps = copying(data, target, now, on_bytes)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            report: Report = done.value
            return report


def copying(
    data: Path, target: Path, now: Callable[[], datetime], on_bytes: OnBytes = lambda _: None
) -> Generator[Step, None, Report]:
    """Do what `back_up` does, and yield each step once it is copied; returns the report."""
    _refuse(data, target)
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            report = yield from _write(data, target, now, on_bytes, file)
            file.flush()
            os.fsync(file.fileno())
            report.stored_bytes = file.tell()
        partial.rename(target)
        PosixDisk().fsync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    return report


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
    if (data / "restoring.json").exists() or b'"aside"' in (_content(data / "schema.json") or b""):
        raise BackupFailed(f"{data} is just being restored or upgraded; start the bot, which finishes that")
    if target.exists():
        raise BackupFailed(f"{target} is there already; choose another name")
    if target.parent.resolve().is_relative_to(data.resolve()):
        raise BackupFailed(f"{target} would lie in the data folder itself; choose a place outside of {data}")


def _write(
    data: Path, target: Path, now: Callable[[], datetime], on_bytes: OnBytes, file: IO[bytes]
) -> Generator[Step, None, Report]:
    at = now()
    report, schemas = Report(target, at), {kind.pattern: kind.schema for kind in KINDS if kind.schema}
    about = About(
        v=VERSION, threadfast=version("threadfast"), data_version=DATA_VERSION, at=at, schemas=schemas
    )
    with (
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=3, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        copy = _Copy(data, tar, report, on_bytes)
        copy.add(ABOUT, about.model_dump_json(indent=2).encode())
        for step in Step:
            match step:
                case Step.NEVER:
                    continue
                case Step.PROMISES:
                    copy.promises()
                case Step.FILES:
                    copy.rest()
                case _:
                    for path in found(data, step):
                        copy.take(path)
            yield step
        contents = Contents(files=copy.sums, skipped=report.skipped, problems=report.problems)
        copy.add(CONTENTS, contents.model_dump_json().encode())
    return report


class _Copy:
    def __init__(self, data: Path, tar: tarfile.TarFile, report: Report, on_bytes: OnBytes) -> None:
        self.sums: dict[str, Sum] = {}
        self._data, self._tar, self._report, self._on_bytes = data, tar, report, on_bytes
        self._taken: set[PurePosixPath] = set()

    def add(self, name: str, content: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o600
        self._tar.addfile(info, io.BytesIO(content))

    def promises(self) -> None:
        """Copy the journal, and the schedules as they were when it was read."""
        journal, schedules = self._data / "journal.jsonl", self._data / "schedules.json"
        for _ in range(TRIES):
            before = _content(schedules)
            promised = _content(journal)
            if _content(schedules) == before:
                break
        else:
            raise BackupFailed("schedules.json changes all the time; try again in a moment")
        for path, content in ((journal, promised), (schedules, before)):
            if content is not None:
                whole = content[: content.rfind(b"\n") + 1] if path is journal else content
                self._stored(_relative(self._data, path), _Source(io.BytesIO(whole), len(whole)))

    def take(self, path: PurePosixPath, folder: int | None = None) -> None:
        """Copy one file; *folder* is a descriptor of the one it lies in."""
        if path in self._taken:
            return
        try:
            fd = os.open(
                self._data / path if folder is None else path.name,
                os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                dir_fd=folder,
            )
        except OSError as error:
            self._unopened(path, error)
            return
        with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            seen = os.fstat(fd)
            if not stat.S_ISREG(seen.st_mode):
                self._skip(path, "neither a file nor a folder")
            elif seen.st_size > SPARSE_ABOVE and seen.st_blocks * 512 < seen.st_size // 10:
                self._skip(path, f"{seen.st_size:,} bytes, mostly holes")
            else:
                kind = kind_of(path)
                lines = kind is not None and kind.schema is not None and path.suffix == ".jsonl"
                try:
                    size = _whole_lines(fd, seen.st_size) if lines else seen.st_size
                except OSError as error:
                    self._unopened(path, error)
                    return
                self._stored(path, _Source(file, size), seen)

    def rest(self) -> None:
        """Copy all that is not copied yet, folders too, following no link."""
        told = lambda error: self._unopened(_relative(self._data, Path(error.filename)), error)  # noqa: E731
        for here, folders, names, fd in os.fwalk(self._data, onerror=told, follow_symlinks=False):
            at = _relative(self._data, Path(here))
            folders[:] = [name for name in sorted(folders) if self._enters(at / name)]
            for name in folders:
                self._folder(at / name, fd)
            for name in sorted(names):
                if not never(at / name):
                    self.take(at / name, fd)

    def _enters(self, folder: PurePosixPath) -> bool:
        """Say whether a folder is copied, and if it is not by rule, tell."""
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

    def _stored(self, path: PurePosixPath, source: _Source, seen: os.stat_result | None = None) -> None:
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

    def _unopened(self, path: PurePosixPath, error: OSError) -> None:
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
    """So many bytes of a file, and their sum; what a file has lost meanwhile, or does not give, reads as zeros."""

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


def _content(path: Path) -> bytes | None:
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
        last = os.pread(fd, end - start, start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


def _too_deep(path: PurePosixPath) -> bool:
    return len(path.parts) > DEEPEST or len(os.fsencode(path)) > LONGEST


def _relative(data: Path, path: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(data))


def as_json(report: Report) -> str:
    return json.dumps({**asdict(report), "file": str(report.file), "at": report.at.isoformat()}, indent=2)
