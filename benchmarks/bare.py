"""The bare loop: the disk operations of a run, replayed by plain system calls without any of our code.

`Recorder` stands between the bot and its disk and notes every operation, grouped by the job that was offloaded. What
the replay costs is what the promises cost on this disk, in Python; the rest of a run is ours.
"""

# ruff: noqa: PTH103, PTH104, PTH108, PTH120 - plain calls on strings: the bare loop must not pay for pathlib

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from threads.store.disk import File, Offload, PosixDisk

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")

Op = tuple[str, str, int]
"""What was done, to which path, with how many bytes."""

Job = list[Op]


class _RecordedFile:
    def __init__(self, file: File, path: str, note: Callable[[Op], None]) -> None:
        self._file, self._path, self._note = file, path, note

    def write(self, data: bytes | memoryview) -> int:
        written = self._file.write(data)
        self._note(("write", self._path, written))
        return written

    def fsync(self) -> None:
        self._file.fsync()
        self._note(("fsync", self._path, 0))

    def close(self) -> None:
        self._file.close()
        self._note(("close", self._path, 0))


class Recorder(PosixDisk):
    """A disk that notes what it did; what its `recording` returns says which operations belong together."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.workers: set[int] = set()
        self._here = threading.local()

    def recording(self, offload: Offload) -> Offload:
        """Return *offload* with each of its calls noted as a job."""

        def noting(function: Callable[[*Arguments], T], /, *args: *Arguments) -> Awaitable[T]:
            job: Job = []
            self.jobs.append(job)
            return offload(self._run, job, function, *args)

        return noting

    def _run(self, job: Job, function: Callable[[*Arguments], T], *args: *Arguments) -> T:
        self.workers.add(threading.get_ident())
        self._here.job = job
        return function(*args)

    def _note(self, op: Op) -> None:
        self._here.job.append(op)

    def read(self, path: Path) -> bytes:
        data = super().read(path)
        self._note(("read", str(path), len(data)))
        return data

    def tail(self, path: Path, size: int) -> bytes:
        data = super().tail(path, size)
        self._note(("tail", str(path), size))
        return data

    def create(self, path: Path) -> File:
        file = super().create(path)
        self._note(("create", str(path), 0))
        return _RecordedFile(file, str(path), self._note)

    def append(self, path: Path) -> File:
        file = super().append(path)
        self._note(("append", str(path), 0))
        return _RecordedFile(file, str(path), self._note)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._note(("rename", str(source), 0))
        assert target == source.with_suffix("")

    def fsync_folder(self, path: Path) -> None:
        super().fsync_folder(path)
        self._note(("fsync_folder", str(path), 0))

    def mkdir(self, *paths: Path) -> None:
        for path in paths:
            self._note(("mkdir", str(path), 0))
        super().mkdir(*paths)


class Replay:
    """Plain system calls in the order of a recording, in another folder. One per thread of execution."""

    def __init__(self, recorded_in: Path, folder: Path) -> None:
        self._from, self._to = str(recorded_in), str(folder)
        self._open: dict[str, int] = {}

    def here(self, jobs: Iterable[Job]) -> Job:
        """Return the operations of *jobs*, one after the other, with their paths in this replay's folder."""
        return [(op, path.replace(self._from, self._to, 1), size) for job in jobs for op, path, size in job]

    def run(self, ops: Job) -> None:
        for op, path, size in ops:
            match op:
                case "write":
                    os.write(self._open[path], _BLOCK[:size] if size < len(_BLOCK) else bytes(size))
                case "fsync":
                    os.fsync(self._open[path])
                case "close":
                    os.close(self._open.pop(path))
                case "create":
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                    self._open[path] = _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                case "append":
                    self._open[path] = _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                case "rename":
                    os.rename(path, path.removesuffix(".tmp"))
                case "fsync_folder":
                    fd = os.open(path, os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)
                case "mkdir":
                    os.makedirs(path, exist_ok=True)
                case _:
                    fd = _opened(path, os.O_RDONLY | os.O_CREAT)
                    os.lseek(fd, -min(size, os.fstat(fd).st_size), os.SEEK_END)
                    os.read(fd, size)
                    os.close(fd)


_BLOCK = bytes(1 << 16)


def _opened(path: str, flags: int) -> int:
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # in the run another task had made it by then
        return os.open(path, flags, 0o600)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took: seconds of wall time, and of CPU over all of the process's threads."""

    wall: float
    cpu: float


class Stopwatch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Cost:
        return Cost(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def replay_side_by_side(jobs: Iterable[Job], workers: int, recorded_in: Path, folder: Path) -> Cost:
    """Replay with as many threads as the run had: one for the journal, one for the logs, the others share the rest.

    Nothing waits for anything here but for the operation before it on the same file, which flatters the bare loop:
    in the run a message's journal records wait for its checkpoint, and the other way round.
    """
    lanes: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if job:
            name = Path(job[0][1]).name.removesuffix(".tmp")
            shared = name in ("journal.jsonl", "log.jsonl")
            lanes[name if shared else str(hash(_folder_of(job)) % max(1, workers - 2))].append(job)
    work = [
        (replay, replay.here(lane)) for lane in lanes.values() for replay in [Replay(recorded_in, folder)]
    ]
    threads = [threading.Thread(target=replay.run, args=(ops,)) for replay, ops in work]
    watch = Stopwatch()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return watch.read()


def _folder_of(job: Job) -> str:
    return os.path.dirname(job[-1][1]) if job[-1][0] != "fsync_folder" else job[-1][1]
