"""Reads a backup file: a tar.gz with a description, then ``data/…``, then the checksums of everything.

The file is not trusted. Only plain files and folders below ``data/`` are accepted. Links, devices, paths that leave
the folder, and files that the last member does not list are refused. The last member also proves that the file is
complete.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Self

from pydantic import AwareDatetime, BaseModel, StringConstraints, ValidationError

from bot.store.layout import DATA_VERSION, Step, kind_of
from threads.errors import BotError, NewerSchema

VERSION = 1
ABOUT = "threadfast-backup.json"
BELOW = "data/"
CONTENTS = "threadfast-contents.json"

MOST_ABOUT = 1_000_000
MOST_CONTENTS = 1_000_000_000
"""Bytes of each of the two members that are read into memory. Enough for two million files."""

MOST_HEADER = 100_000
"""Bytes that the header of a member may add to its usual 512. tarfile reads all of them into memory."""

BLOCK = 1_000_000


class BackupDamaged(BotError):
    """The file is not a backup, or it is damaged. Nothing was changed."""


class About(BaseModel):
    """Describes a backup: the program that made it, its data, and its time ``at``, in UTC."""

    v: int
    threadfast: Annotated[str, StringConstraints(pattern=r"^[!-~]{1,100}$")]
    data_version: int
    at: AwareDatetime
    schemas: dict[str, int] = {}


class Sum(BaseModel):
    size: int
    sha256: str


class Contents(BaseModel):
    files: dict[str, Sum]
    skipped: list[str] = []
    problems: list[str] = []


def never(path: PurePosixPath) -> bool:
    """Return whether a file only matters to the running process, such as a lock or a temporary file."""
    kind = kind_of(path)
    return kind.step is Step.NEVER if kind else path.suffix in {".tmp", ".sock"}


def is_reserved(folder: PurePosixPath) -> bool:
    """Return whether a folder at this path would be in the way of a file of ours."""
    kind = kind_of(folder.with_suffix("") if folder.suffix == ".tmp" else folder)
    return kind is not None and (kind.step is Step.NEVER or not kind.pattern.endswith("**"))


def encoded_path(path: PurePosixPath) -> str:
    """Return a path as the list of files has it: in UTF-8, and different for different bytes."""
    return str(path).replace("\\", "\\\\").encode("utf-8", "backslashreplace").decode()


Keep = Callable[[PurePosixPath, tarfile.TarInfo, Iterator[bytes]], None]
"""Stores one file or folder. It must read all bytes."""


@dataclass(frozen=True, slots=True)
class Read:
    about: About
    contents: Contents
    bytes: int


def about(file: Path) -> About:
    """Return the description in a backup file. Raises `BackupDamaged`, `NewerSchema` and OSError."""
    return next(_members(file))[1]


def read(file: Path, keep: Keep, *, most: int | None = None) -> Read:
    """Pass each file and folder of a backup to *keep*, and check every checksum.

    Raises `BackupDamaged`, also for more than *most* bytes, `NewerSchema` and OSError.
    """
    sums: dict[str, Sum] = {}
    folders: set[str] = set()
    total, contents, made = 0, None, None
    for info, made, source in _members(file):  # noqa: B007 - the last one's is the file's
        if contents is not None:
            raise BackupDamaged(f"{file} goes on after its end")
        if info.name == ABOUT:
            continue
        if info.name == CONTENTS:
            contents = _contents(file, info, source)
            continue
        path = _path(file, info)
        name = encoded_path(path)
        if name in sums or name in folders:
            raise BackupDamaged(f"{file} holds {name!r} twice")
        total += info.size
        if most is not None and total > most:
            raise BackupDamaged(f"{file} holds more than there is room for: over {total:,} bytes")
        digest = hashlib.sha256()
        keep(path, info, _blocks(file, source, info, digest))
        if info.isreg():
            sums[name] = Sum(size=info.size, sha256=digest.hexdigest())
        else:
            folders.add(name)
    if contents is None or made is None:
        raise BackupDamaged(f"{file} is not whole: its end is missing")
    if wrong := [
        name for name in sums.keys() | contents.files.keys() if sums.get(name) != contents.files.get(name)
    ]:
        raise BackupDamaged(
            f"{file} is damaged: {len(wrong)} files are not as they were, such as {min(wrong)!r}"
        )
    return Read(made, contents, total)


def verify(file: Path) -> Read:
    """Read a whole backup and keep nothing. Raises as `read`."""

    def look(_: PurePosixPath, __: tarfile.TarInfo, blocks: Iterator[bytes]) -> None:
        for _block in blocks:
            pass

    return read(file, look)


class _Header(tarfile.TarInfo):
    """A member's header. A very long one counts as damage."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type not in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE) and header.size > MOST_HEADER:
            raise tarfile.ReadError("a header is too long")
        return header


@contextmanager
def _understood(file: Path) -> Iterator[None]:
    """Turn the errors of tarfile and gzip into `BackupDamaged`."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, RecursionError) as error:
        raise BackupDamaged(f"{file} is not a backup, or is damaged: {error}") from error


def _members(file: Path) -> Iterator[tuple[tarfile.TarInfo, About, IO[bytes] | None]]:
    made: About | None = None
    with (
        _understood(file),
        gzip.open(file) as zipped,
        tarfile.open(fileobj=zipped, mode="r|", tarinfo=_Header) as tar,
    ):
        for info in tar:
            source = tar.extractfile(info) if info.isreg() else None
            if made is None:
                made = _about(file, info, source)
            yield info, made, source
            tar.members = []  # type: ignore[attr-defined]  # otherwise all members stay in memory
        while zipped.read(BLOCK):  # to the end, where the checksum of everything is
            pass
    if made is None:
        raise BackupDamaged(f"{file} is not a backup of Threadfast: it is empty")


def _about(file: Path, info: tarfile.TarInfo, source: IO[bytes] | None) -> About:
    if info.name != ABOUT or source is None or info.size > MOST_ABOUT:
        raise BackupDamaged(f"{file} is not a backup of Threadfast")
    try:
        made = About.model_validate_json(source.read())
    except ValidationError as error:
        raise BackupDamaged(f"{file} is not a backup of Threadfast: {error.error_count()} faults") from error
    if made.v > VERSION or made.data_version > DATA_VERSION:
        raise NewerSchema(
            f"{file} was made by a newer Threadfast ({made.threadfast}, data of version {made.data_version}; this "
            f"one knows {DATA_VERSION}); update this one first."
        )
    return made


def _contents(file: Path, info: tarfile.TarInfo, source: IO[bytes] | None) -> Contents:
    try:
        if source is not None and info.size <= MOST_CONTENTS:
            return Contents.model_validate_json(source.read())
    except ValidationError as error:
        raise BackupDamaged(f"{file}: its list of files is damaged") from error
    raise BackupDamaged(f"{file}: its list of files cannot be read")


def _path(file: Path, info: tarfile.TarInfo) -> PurePosixPath:
    """Return the path of a member in the data folder. Raises `BackupDamaged` if it has none."""
    name = info.name.removeprefix(BELOW)
    path = PurePosixPath(name)
    plain = (info.isreg() and not info.issparse()) or info.isdir()
    if (
        not plain
        or name == info.name
        or path.is_absolute()
        or not path.parts
        or ".." in path.parts
        or "\0" in name
        or (is_reserved(path) if info.isdir() else never(path))
        or any(map(is_reserved, path.parents))
    ):
        raise BackupDamaged(f"{file} holds what no backup of Threadfast holds: {info.name!r}")
    return path


def _blocks(
    file: Path, source: IO[bytes] | None, info: tarfile.TarInfo, digest: hashlib._Hash
) -> Iterator[bytes]:
    left = info.size
    while source is not None and left > 0:
        with _understood(file):
            block = source.read(min(BLOCK, left))
        if not block:
            raise BackupDamaged(f"{file} is damaged: its end is missing")
        left -= len(block)
        digest.update(block)
        yield block
