"""The files of threads, which follow their thread from worker to worker.

The owner of a thread replaces the list of its files, as a whole, before the turn's answer goes out. A worker that
takes the thread over makes its folder equal to that list.

If a file changes while it is read, what was read is stored: each part is stored under its own SHA-256.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import anyio
import anyio.to_thread

from bot.reports.files import FileReader
from threads.errors import Fenced

from .local_files import Hashes, NewFile, StoredFile, keep_only, read_parts, remove, scan
from .session import DatabaseSession, Pool, as_unavailable

TRIES = 3
"""Tries to send a list whose content was deleted meanwhile."""

STORED = "SELECT files_stored FROM thread WHERE id = %s"
FILES = "SELECT path, array_agg(sha ORDER BY part), min(mode) FROM file WHERE thread = %s GROUP BY path"
KNOWN = "SELECT sha FROM blob WHERE sha = ANY (%s)"
PUT = "INSERT INTO blob (sha, data) VALUES (%s, %s) ON CONFLICT DO NOTHING"
GET = "SELECT data FROM blob WHERE sha = %s"
REPLACE = "SELECT * FROM replace_files(%s, %s, %s, %s, %s, %s, %s)"
NOT_SERVED = (
    "SELECT g.id, array_remove(array_agg(DISTINCT f.path), NULL) FROM unnest(%s::text[]) g (id) "
    "JOIN thread t ON t.id = g.id LEFT JOIN file f ON f.thread = g.id "
    "WHERE t.owner IS NULL AND t.files_stored GROUP BY g.id"
)
"""What the database does not know, or never had the files of, is no copy: it may be from before the database."""


@dataclass(slots=True)
class Folder:
    """A workspace on this machine: the epoch that it is from, and the files that were stored last.

    ``stored`` is None if its files were never stored, because they are older than the database.
    """

    epoch: int
    stored: dict[bytes, StoredFile] | None
    hashes: Hashes


class Workspaces:
    """The workspaces of one worker. *epoch_of* returns a thread's epoch, or None if another worker owns it."""

    def __init__(self, pool: Pool, me: Callable[[], int], epoch_of: Callable[[str], int | None]) -> None:
        self._session, self._me, self._epoch_of = DatabaseSession(pool), me, epoch_of
        self._folders: dict[str, Folder] = {}
        self._busy = anyio.Lock()

    async def fetch(self, thread: str, root: Path) -> None:
        """Make the folder *root* equal to the stored files, once per takeover. Raises `StoreUnavailable`."""
        epoch, folder = self._epoch_of(thread), self._folders.get(thread)
        if epoch is None or (folder and folder.epoch == epoch):
            return
        with as_unavailable("workspace: "):
            async with self._busy:
                hashes = folder.hashes if folder else {}
                stored = None
                if await self._session.rows(STORED, (thread,)) == [(True,)]:
                    rows = await self._session.rows(FILES, (thread,))
                    stored = {path: StoredFile(path, tuple(parts), mode) for path, parts, mode in rows}
                    hashes = await self._restore(stored, root, hashes)
                self._folders[thread] = Folder(epoch, stored, hashes)

    async def save(self, thread: str, root: Path) -> None:
        """Store the changed files of *root*. Raises `StoreUnavailable` and `Fenced`."""
        if (epoch := self._epoch_of(thread)) is None:
            raise Fenced(thread_id=thread)
        folder = self._folders.get(thread)
        if folder is None or folder.epoch != epoch:
            return  # no tool used it since the thread was taken over
        with as_unavailable("workspace: "):
            async with self._busy:
                await self._save(thread, epoch, folder, root)

    async def drop_forgotten(self, data: Path) -> None:
        """Delete copies below the data folder *data* of files that no list has any more. Raises OSError."""
        found = await anyio.to_thread.run_sync(FileReader(data).threads)
        roots = {folder.name: folder.path / "workspace" for folder in found}
        async with self._busy:
            for thread, paths in await self._session.rows(NOT_SERVED, (list(roots),)):
                self._folders.pop(thread, None)
                await anyio.to_thread.run_sync(keep_only, roots[thread], paths)

    def forget(self, thread: str) -> None:
        """Read the list of a thread's files again before they are used."""
        self._folders.pop(thread, None)

    async def _restore(self, stored: dict[bytes, StoredFile], root: Path, hashes: Hashes) -> Hashes:
        local, hashes = await anyio.to_thread.run_sync(scan, root, hashes)
        await anyio.to_thread.run_sync(remove, root, local.keys() - stored.keys())
        for file in stored.values():
            if local.get(file.path) != file:
                await self._download(file, root)
        return hashes

    async def _save(self, thread: str, epoch: int, folder: Folder, root: Path) -> None:
        files, folder.hashes = await anyio.to_thread.run_sync(scan, root, folder.hashes)
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
        """Store the missing content of *files*, and return the files as they were read."""
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
        with closing(read_parts(root, path)) as parts:
            while (data := await anyio.to_thread.run_sync(next, parts, None)) is not None:
                shas.append(sha := sha256(data).digest())
                if sha not in known:
                    await self._session.rows(PUT, (sha, data))
                    known.add(sha)
        return tuple(shas)

    async def _download(self, file: StoredFile, root: Path) -> None:
        with anyio.CancelScope(shield=True):  # otherwise nobody would close it
            new = await anyio.to_thread.run_sync(NewFile, root, file)
        with closing(new):
            for sha in file.parts:
                if not (rows := await self._session.rows(GET, (sha,))):
                    raise OSError("a part of a file is not stored")
                await anyio.to_thread.run_sync(new.write, rows[0][0])
            await anyio.to_thread.run_sync(new.place)
