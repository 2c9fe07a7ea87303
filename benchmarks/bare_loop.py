"""The bare loop: conversations that do to the disk what ours do, in as little Python as that takes.

For each message of a thread, one after the other: an append to one shared file and its fsync, shared with whoever
waits at that moment, four times (received, started, intent, posted and settled); between the second and the third a
file replaced whole (write, fsync, rename, fsync of the folder); at the end an append to a log, not synced. A new
thread's folder is synced into its parent. No actors, no checks, no JSON: asyncio, a pool of as many threads as ours
has, and system calls.
"""

# ruff: noqa: PTH102, PTH104 - plain calls on strings: the bare loop must not pay for pathlib

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.bare import Cost, Stopwatch

THREADS = 40
"""What `anyio.to_thread` allows at once, and so what ours uses."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of one message: each of its four journal appends, its log lines, and what its context grows by."""

    journal: int = 240
    log: int = 620
    context: int = 330


class _Shared:
    """An append-only file with one writer: bytes that come while a batch is synced share the next one."""

    def __init__(self, path: str, pool: ThreadPoolExecutor) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pool = pool
        self._held: list[bytes] = []
        self._done = asyncio.Event()
        self._wake = asyncio.Event()

    async def append(self, data: bytes) -> None:
        self._held.append(data)
        done = self._done
        self._wake.set()
        await done.wait()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            held, done = self._held, self._done
            self._held, self._done = [], asyncio.Event()
            await asyncio.get_running_loop().run_in_executor(self._pool, self._write, b"".join(held))
            done.set()

    def _write(self, data: bytes) -> None:
        os.write(self._fd, data)
        os.fsync(self._fd)


def _replace(folder: str, data: bytes) -> None:
    path = f"{folder}/context.jsonl"
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)
    os.rename(path + ".tmp", path)
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _make(folder: str, data: bytes) -> None:  # noqa: ARG001 - the same shape as the others
    os.mkdir(folder)
    fd = os.open(f"{folder}/..", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _log(folder: str, data: bytes) -> None:
    fd = os.open(f"{folder}/log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, data)
    os.close(fd)


def run_bare(folder: str, threads: int, messages: int, sizes: Sizes) -> Cost:
    """Hold *threads* conversations of so many messages side by side, and return what that took."""
    return asyncio.run(_bare(folder, threads, messages, sizes))


async def _bare(folder: str, threads: int, messages: int, sizes: Sizes) -> Cost:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(THREADS) as pool:
        os.mkdir(folder)
        journal = _Shared(f"{folder}/journal.jsonl", pool)

        async def work(function: Callable[[str, bytes], None], place: str, data: bytes) -> None:
            await loop.run_in_executor(pool, function, place, data)

        async def one(thread: int) -> None:
            place = f"{folder}/{thread}"
            line, lines, context = bytes(sizes.journal), bytes(sizes.log), b""
            for number in range(messages):
                await journal.append(line)
                await journal.append(line)
                if not number:
                    await work(_make, place, b"")
                context += bytes(sizes.context)
                await work(_replace, place, context)
                await journal.append(line)
                await journal.append(line)
                await work(_log, place, lines)

        writer = asyncio.ensure_future(journal.run())
        watch = Stopwatch()
        await asyncio.gather(*map(one, range(threads)))
        cost = watch.read()
        writer.cancel()
    return cost
