"""The bare loop: conversations that do to the disk what ours do, in as little Python as that takes.

It has the same freedoms. For each message of a thread, one after the other: a line of one shared file is awaited
(received), the next one is not (started); a line (intent) and the file that is replaced whole (write, fsync, rename,
fsync of the folder) are awaited side by side; two more lines (posted and settled) are not awaited, and an append to a
log follows, not synced. The folders of new threads are synced into their parent together. One thread writes the
shared file, one the logs, and as many as the core has replace files. Each takes all that waits and wakes the loop
once for it. No actors, no checks, no JSON: asyncio and system calls.
"""

# ruff: noqa: PTH102, PTH104 - plain calls on strings: the bare loop must not pay for pathlib

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread

from benchmarks.stopwatch import Cost, Stopwatch
from threads.store.checkpoints import WRITERS


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of one message: each of its five journal lines, its log lines, and what its context grows by."""

    journal: int = 200
    log: int = 620
    context: int = 330


Item = tuple[str, bytes | bytearray]
"""A folder and what is to be written there."""

Job = tuple[Item, asyncio.Future[None]]


class Writer:
    """A thread that takes all that waits."""

    def __init__(self, write: Callable[[list[Item]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def put(self, folder: str, data: bytes | bytearray) -> asyncio.Future[None]:
        done = self._loop.create_future()
        self._queue.put(((folder, data), done))
        return done

    def end(self) -> None:
        """Return when all is written."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        job = self._queue.get()
        while job is not None:
            jobs = [job]
            with suppress(Empty):
                while (job := self._queue.get_nowait()) is not None:
                    jobs.append(job)
            self._write([item for item, _ in jobs])
            self._loop.call_soon_threadsafe(self._done, [done for _, done in jobs])
            if job is not None:
                job = self._queue.get()

    def _done(self, futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)


def append_journal(fd: int, items: list[Item]) -> None:
    os.write(fd, b"".join([data for _, data in items]))
    os.fsync(fd)


def _fsync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def replace_files(items: list[Item]) -> None:
    new = [folder for folder, _ in items if not os.path.isdir(folder)]  # noqa: PTH112
    for folder in new:
        os.mkdir(folder)
    if new:
        _fsync_folder(f"{new[0]}/..")
    for folder, data in items:
        fd = os.open(f"{folder}/context.jsonl.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
    for folder, _ in items:
        os.rename(f"{folder}/context.jsonl.tmp", f"{folder}/context.jsonl")
    for folder, _ in items:
        _fsync_folder(folder)


def append_logs(items: list[Item]) -> None:
    for folder, data in items:
        fd = os.open(f"{folder}/log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, data)
        os.close(fd)


class BareLoop:
    """The loop over one folder, for the event loop that it is made in; `close` it in the end."""

    def __init__(self, folder: str, sizes: Sizes) -> None:
        os.mkdir(folder)
        self._folder, self._sizes = folder, sizes
        self._fd = os.open(f"{folder}/journal.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._journal, self._logs = Writer(partial(append_journal, self._fd)), Writer(append_logs)
        self._checkpoints = [Writer(replace_files) for _ in range(WRITERS)]
        self._contexts: dict[int, bytes] = {}

    async def message(self, thread: int) -> tuple[float, float]:
        """Take a message and answer it; return after how many seconds it may be acknowledged, and posted."""
        place, line, start = f"{self._folder}/{thread}", bytes(self._sizes.journal), time.perf_counter()
        await self._journal.put("", line)
        acknowledged = time.perf_counter()
        self._journal.put("", line)
        context = self._contexts.get(thread, b"") + bytes(self._sizes.context)
        self._contexts[thread] = context
        intent = self._journal.put("", line)
        await self._checkpoints[thread % WRITERS].put(place, context)
        await intent
        posted = time.perf_counter()
        self.settled = self._journal.put("", line + line)
        self._logs.put(place, bytes(self._sizes.log))
        return acknowledged - start, posted - start

    def close(self) -> None:
        """Return when all is written."""
        for writer in (self._journal, *self._checkpoints, self._logs):
            writer.end()
        os.close(self._fd)


def run_bare(folder: str, threads: int, messages: int, sizes: Sizes) -> Cost:
    """Hold *threads* conversations of so many messages side by side, and return what that took."""
    return asyncio.run(_bare(folder, threads, messages, sizes))


async def _bare(folder: str, threads: int, messages: int, sizes: Sizes) -> Cost:
    loop = BareLoop(folder, sizes)

    async def one(thread: int) -> None:
        for _ in range(messages):
            await loop.message(thread)

    watch = Stopwatch()
    await asyncio.gather(*map(one, range(threads)))
    cost = watch.read()
    loop.close()
    return cost
