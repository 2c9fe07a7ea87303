"""The files of threads: they follow their thread from worker to worker.

The list of a thread's files is replaced whole, by its owner only, before the turn's answer goes out. A worker that
takes a thread over makes its folder equal to that list. Links, pipes and the like are not files, and stay behind.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

import anyio
import anyio.to_thread

from threads.errors import Fenced, StoreUnavailable

from .session import Row, Session

log = logging.getLogger(__name__)

PART = 1 << 20
"""Bytes of a part."""

TRIES = 3
"""How often a folder is read that changes meanwhile."""

FILES = "SELECT path, sha, size, mode FROM file WHERE thread = %s"
KNOWN = "SELECT s FROM unnest(%s::bytea[]) s JOIN blob b ON b.sha = s AND b.part = 0"
PUT = "INSERT INTO blob (sha, part, data) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
GET = "SELECT data FROM blob WHERE sha = %s AND part = %s"
REPLACE = "SELECT * FROM replace_files(%s, %s, %s, %s, %s, %s, %s)"
COLLECT = "SELECT collect_blobs()"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a workspace: where, its content's SHA-256, bytes, and whether it may be run."""

    path: bytes
    sha: bytes
    size: int
    mode: int


@dataclass(slots=True)
class Folder:
    """What is known of a workspace on this machine: as of which epoch it is, and what was stored last.

    ``hashes`` has the SHA-256 of files by path, size, time of change and inode.
    """

    epoch: int
    stored: dict[bytes, StoredFile]
    hashes: dict[tuple[bytes, int, int, int], bytes]


class FileChanged(OSError):
    """A file changed while it was being read."""


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
                rows = await self._session.rows(FILES, (thread,))
                stored = {file.path: file for file in map(_stored, rows)}
                hashes = folder.hashes if folder else {}
                local, hashes = await anyio.to_thread.run_sync(_scan, root, hashes)
                for file in stored.values():
                    if local.pop(file.path, None) != file:
                        await self._download(file, root)
                if stored:  # else the files are from before the database, and are stored after this turn
                    await anyio.to_thread.run_sync(_remove, root, list(local))
                self._folders[thread] = Folder(epoch, stored, hashes)
        except OSError as error:
            raise StoreUnavailable(f"workspace: {error}") from error

    async def save(self, thread: str, root: Path) -> None:
        """Store what has changed in *root*. Raises `StoreUnavailable` and `Fenced`."""
        if (epoch := self._epoch_of(thread)) is None:
            raise Fenced(thread_id=thread)
        folder = self._folders.get(thread)
        if folder is None or folder.epoch != epoch:
            return None  # no tool had it since the thread was taken up
        try:
            async with self._busy:
                for left in reversed(range(TRIES)):
                    try:
                        return await self._save(thread, epoch, folder, root)
                    except (FileNotFoundError, FileChanged):
                        if not left:
                            raise
        except OSError as error:
            raise StoreUnavailable(f"workspace: {error}") from error

    async def collect(self) -> None:
        """Delete content that nobody has named for an hour. Raises OSError."""
        await self._session.rows(COLLECT)

    async def close(self) -> None:
        await self._session.close()

    async def _save(self, thread: str, epoch: int, folder: Folder, root: Path) -> None:
        files, folder.hashes = await anyio.to_thread.run_sync(_scan, root, folder.hashes)
        if files == folder.stored:
            return
        by_sha = {file.sha: file for file in files.values()}
        known = {bytes(sha) for (sha,) in await self._session.rows(KNOWN, (list(by_sha),))}
        for sha in by_sha.keys() - known:
            await self._upload(by_sha[sha], root)
        every = list(files.values())
        columns = ([getattr(file, name) for file in every] for name in ("path", "sha", "size", "mode"))
        gone = [row[0] for row in await self._session.rows(REPLACE, (self._me(), thread, epoch, *columns))]
        if gone == [None]:
            raise Fenced(thread_id=thread)
        if gone:
            raise FileChanged("content was collected meanwhile")
        folder.stored = files

    async def _upload(self, file: StoredFile, root: Path) -> None:
        """Store a file's content: the first part last, once all of it is what was expected."""
        whole, first = sha256(), b""
        parts = _parts(root / os.fsdecode(file.path))
        number = 0
        while data := await anyio.to_thread.run_sync(next, parts, b""):
            whole.update(data)
            if number:
                await self._session.rows(PUT, (file.sha, number, data))
            first, number = first or data, number + 1
        if whole.digest() != file.sha:
            raise FileChanged(f"{os.fsdecode(file.path)!r} changes all the time")
        await self._session.rows(PUT, (file.sha, 0, first))

    async def _download(self, file: StoredFile, root: Path) -> None:
        path = await anyio.to_thread.run_sync(_safe, root, file.path)
        part = path.with_name(f".{file.sha.hex()[:16]}.part")
        async with await anyio.open_file(part, "wb") as out:
            for number in range(max(1, -(-file.size // PART))):
                rows = await self._session.rows(GET, (file.sha, number))
                if not rows:
                    raise OSError(f"part {number} of a file is not stored")
                await out.write(rows[0][0])
        await anyio.to_thread.run_sync(part.chmod, file.mode)
        await anyio.to_thread.run_sync(part.replace, path)


def _stored(row: Row) -> StoredFile:
    path, sha, size, mode = row
    return StoredFile(bytes(path), bytes(sha), size, mode)


def _parts(path: Path) -> Iterator[bytes]:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        while data := file.read(PART):
            yield data


def _scan(
    root: Path, hashes: dict[tuple[bytes, int, int, int], bytes]
) -> tuple[dict[bytes, StoredFile], dict[tuple[bytes, int, int, int], bytes]]:
    """Return the regular files below *root* by path, and their hashes; what was hashed is not read again."""
    files, fresh = dict[bytes, StoredFile](), dict[tuple[bytes, int, int, int], bytes]()
    paths = (Path(folder, name) for folder, _, names in os.walk(root) for name in names)
    for path in paths:
        try:
            about = path.lstat()
            if stat.S_ISREG(about.st_mode):
                key = os.fsencode(path.relative_to(root).as_posix())
                known = (key, about.st_size, about.st_mtime_ns, about.st_ino)
                fresh[known] = digest = hashes.get(known) or _digest(path)
                files[key] = StoredFile(key, digest, about.st_size, 0o700 if about.st_mode & 0o100 else 0o600)
        except (FileNotFoundError, PermissionError) as error:
            log.warning("workspace.left_out: a file cannot be stored: %s", error)
    return files, fresh


def _digest(path: Path) -> bytes:
    whole = sha256()
    for data in _parts(path):
        whole.update(data)
    return whole.digest()


def _safe(root: Path, path: bytes) -> Path:
    """Return where a file goes, whose folders are made; nothing leads out of *root*. Raises OSError."""
    parts = PurePosixPath(os.fsdecode(path)).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise OSError(f"{os.fsdecode(path)!r} is no path below a workspace")
    folder = root
    folder.mkdir(parents=True, exist_ok=True)
    for name in parts[:-1]:
        folder /= name
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            folder.unlink()
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder / parts[-1]


def _remove(root: Path, paths: list[bytes]) -> None:
    for path in paths:
        (root / os.fsdecode(path)).unlink(missing_ok=True)
