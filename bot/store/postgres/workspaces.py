"""The files of threads: they follow their thread from worker to worker.

The list of a thread's files is replaced whole, by its owner only, before the turn's answer goes out. A worker that
takes a thread over makes its folder equal to that list. Links, pipes and the like are not files, and stay behind.

A process that a tool left behind may change the folder meanwhile. So nothing here follows a link, and what is stored
of a file that changes while it is read is what was read: each part lies under its own SHA-256.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from secrets import token_hex

import anyio
import anyio.to_thread

from threads.errors import Fenced, StoreUnavailable

from .session import Session

log = logging.getLogger(__name__)

PART = 1 << 20
"""Bytes of a part."""

TRIES = 3
"""How often a list is sent whose content was collected meanwhile."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

STORED = "SELECT files_stored FROM thread WHERE id = %s"
FILES = "SELECT path, array_agg(sha ORDER BY part), min(mode) FROM file WHERE thread = %s GROUP BY path"
KNOWN = "SELECT sha FROM blob WHERE sha = ANY (%s)"
PUT = "INSERT INTO blob (sha, data) VALUES (%s, %s) ON CONFLICT DO NOTHING"
GET = "SELECT data FROM blob WHERE sha = %s"
REPLACE = "SELECT * FROM replace_files(%s, %s, %s, %s, %s, %s, %s)"
COLLECT = "SELECT collect_blobs()"

Hashes = dict[tuple[bytes, int, int, int], tuple[bytes, ...]]
"""The SHA-256 of a file's parts, by its path, size, time of change and inode."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a workspace: where, the SHA-256 of its parts, and whether it may be run."""

    path: bytes
    parts: tuple[bytes, ...]
    mode: int


@dataclass(slots=True)
class Folder:
    """What is known of a workspace on this machine: as of which epoch it is, and what was stored last.

    ``stored`` is None while the thread's files were never stored: they are from before the database.
    """

    epoch: int
    stored: dict[bytes, StoredFile] | None
    hashes: Hashes


class Workspaces:
    """The workspaces of one worker; *epoch_of* returns a thread's epoch, None for one that is another's."""

    def __init__(self, dsn: str, me: Callable[[], int], epoch_of: Callable[[str], int | None]) -> None:
        self._session, self._me, self._epoch_of = Session(dsn), me, epoch_of
        self._folders: dict[str, Folder] = {}
        self._busy = anyio.Lock()

    async def fetch(self, thread: str, root: Path) -> None:
        """Make the folder *root* equal to what is stored, once per takeover. Raises `StoreUnavailable`."""
        epoch, folder = self._epoch_of(thread), self._folders.get(thread)
        if epoch is None or (folder and folder.epoch == epoch):
            return
        try:
            async with self._busy:
                hashes = folder.hashes if folder else {}
                stored = None
                if await self._session.rows(STORED, (thread,)) == [(True,)]:
                    rows = await self._session.rows(FILES, (thread,))
                    stored = {path: StoredFile(path, tuple(parts), mode) for path, parts, mode in rows}
                    hashes = await self._restore(stored, root, hashes)
                self._folders[thread] = Folder(epoch, stored, hashes)
        except OSError as error:
            raise StoreUnavailable(f"workspace: {error}") from error

    async def save(self, thread: str, root: Path) -> None:
        """Store what has changed in *root*. Raises `StoreUnavailable` and `Fenced`."""
        if (epoch := self._epoch_of(thread)) is None:
            raise Fenced(thread_id=thread)
        folder = self._folders.get(thread)
        if folder is None or folder.epoch != epoch:
            return  # no tool had it since the thread was taken up
        try:
            async with self._busy:
                await self._save(thread, epoch, folder, root)
        except OSError as error:
            raise StoreUnavailable(f"workspace: {error}") from error

    async def collect(self) -> None:
        """Delete content that nobody has named for an hour. Raises OSError."""
        await self._session.rows(COLLECT)

    async def close(self) -> None:
        await self._session.close()

    async def _restore(self, stored: dict[bytes, StoredFile], root: Path, hashes: Hashes) -> Hashes:
        local, hashes = await anyio.to_thread.run_sync(_scan, root, hashes)
        await anyio.to_thread.run_sync(_remove, root, local.keys() - stored.keys())
        for file in stored.values():
            if local.get(file.path) != file:
                await self._download(file, root)
        return hashes

    async def _save(self, thread: str, epoch: int, folder: Folder, root: Path) -> None:
        files, folder.hashes = await anyio.to_thread.run_sync(_scan, root, folder.hashes)
        if files == folder.stored:
            return
        for _ in range(TRIES):
            files = await self._upload(files, root)
            parts = [
                (f.path, number, sha, f.mode) for f in files.values() for number, sha in enumerate(f.parts)
            ]
            columns = [list(column) for column in zip(*parts, strict=True)] or [[], [], [], []]
            gone = await self._session.rows(REPLACE, (self._me(), thread, epoch, *columns))
            if gone == [(None,)]:
                raise Fenced(thread_id=thread)
            if not gone:
                folder.stored = files
                return
        raise OSError("content is collected before its list is stored")

    async def _upload(self, files: dict[bytes, StoredFile], root: Path) -> dict[bytes, StoredFile]:
        """Store the content of *files* that is missing, and return them as they were read."""
        shas = list({sha for file in files.values() for sha in file.parts})
        known = {sha for (sha,) in await self._session.rows(KNOWN, (shas,))}
        fresh = dict(files)
        for file in files.values():
            if not known.issuperset(file.parts):
                try:
                    fresh[file.path] = replace(file, parts=await self._upload_file(root, file.path, known))
                except (FileNotFoundError, NotADirectoryError):
                    del fresh[file.path]
        return fresh

    async def _upload_file(self, root: Path, path: bytes, known: set[bytes]) -> tuple[bytes, ...]:
        shas = []
        with closing(_parts_below(root, path)) as parts:
            while (data := await anyio.to_thread.run_sync(next, parts, None)) is not None:
                shas.append(sha := sha256(data).digest())
                if sha not in known:
                    await self._session.rows(PUT, (sha, data))
                    known.add(sha)
        return tuple(shas)

    async def _download(self, file: StoredFile, root: Path) -> None:
        with anyio.CancelScope(shield=True):  # the folder stays open no longer than this
            folder, name = await anyio.to_thread.run_sync(_open_parent, root, file.path, True)
        part = f".{token_hex(8)}.part"
        try:
            number = os.open(
                part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, file.mode, dir_fd=folder
            )
            async with anyio.wrap_file(os.fdopen(number, "wb")) as out:
                for sha in file.parts:
                    rows = await self._session.rows(GET, (sha,))
                    if not rows:
                        raise OSError("a part of a file is not stored")
                    await out.write(rows[0][0])
            await anyio.to_thread.run_sync(_move, part, name, folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
            os.close(folder)


def _parts(path: Path | str, folder: int | None = None) -> Generator[bytes]:
    """Yield the content of a file in parts: at least one, which may be empty. *folder* is what *path* is below."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
        data = file.read(PART)
        yield data
        while len(data) == PART and (data := file.read(PART)):
            yield data


def _scan(root: Path, hashes: Hashes) -> tuple[dict[bytes, StoredFile], Hashes]:
    """Return the regular files below *root* by path, and their hashes; what was hashed is not read again.

    *root* is made if it is missing, and folders that a tool closed to their owner are opened.
    """
    _make_root(root)
    files, fresh = dict[bytes, StoredFile](), Hashes()
    for folder, folders, names, number in os.fwalk(root):
        for name in folders:
            _let_owner_in(name, number)
        for name in names:
            try:
                about = os.stat(name, dir_fd=number, follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    path = os.fsencode(Path(folder, name).relative_to(root).as_posix())
                    known = (path, about.st_size, about.st_ctime_ns, about.st_ino)
                    fresh[known] = parts = hashes.get(known) or _digests(name, number)
                    files[path] = StoredFile(path, parts, 0o700 if about.st_mode & 0o100 else 0o600)
            except (FileNotFoundError, PermissionError) as error:
                log.warning("workspace.left_out: a file cannot be stored: %s", error)
    return files, fresh


def _make_root(root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    parent = os.open(root.parent, FOLDER)
    try:
        _make_folder(root.name, parent)
        _let_owner_in(root.name, parent)
    finally:
        os.close(parent)


def _let_owner_in(name: str, parent: int) -> None:
    with suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            os.chmod(name, 0o700, dir_fd=parent)


def _digests(name: str, folder: int) -> tuple[bytes, ...]:
    return tuple(sha256(data).digest() for data in _parts(name, folder))


def _parts_below(root: Path, path: bytes) -> Generator[bytes]:
    folder, name = _open_parent(root, path)
    try:
        yield from _parts(name, folder)
    finally:
        os.close(folder)


def _open_parent(root: Path, path: bytes, make: bool = False) -> tuple[int, str]:
    """Open the folder that has the file at *path* below *root*, and return its descriptor and the file's name.

    With *make*, folders that are missing are made, also where something else has their place. Raises OSError, also
    for a path that leads out of *root*.
    """
    *folders, name = PurePosixPath(os.fsdecode(path)).parts or ("..",)
    if ".." in (*folders, name) or os.fsdecode(path).startswith("/"):
        raise OSError(f"{os.fsdecode(path)!r} is no path below a workspace")
    number = os.open(root, FOLDER)
    for inner in folders:
        outer = number
        try:
            if make:
                _make_folder(inner, outer)
            number = os.open(inner, FOLDER, dir_fd=outer)
        finally:
            os.close(outer)
    return number, name


def _make_folder(name: str, parent: int) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)


def _move(part: str, name: str, folder: int) -> None:
    """Give a file its name, also where a folder has it."""
    try:
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=folder)
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)


def _remove(root: Path, paths: Iterable[bytes]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            folder, name = _open_parent(root, path)
            try:
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)
