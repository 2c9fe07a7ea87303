"""Threads of the disk, batches with one writer, and many files replaced at once."""

from __future__ import annotations

import asyncio
import errno
import threading
from contextvars import ContextVar
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.world import Clock, FaultyDisk, FaultyFile, inline
from threads.file_store import FileStore
from threads.store.checkpoints import SHARE, WRITERS, Checkpoints
from threads.store.disk import PosixDisk
from threads.store.disk_threads import DiskThreads
from threads.store.group_commit import CLOSED, GroupWriter

pytestmark = pytest.mark.anyio

turn = ContextVar("turn", default="")


@pytest.fixture
async def disk_threads():
    made = DiskThreads(2)
    yield made
    made.close()


async def test_a_job_runs_in_a_thread_and_its_result_comes_back_with_its_error_and_its_context(disk_threads):
    def look() -> tuple[str, str]:
        return threading.current_thread().name, turn.get()

    turn.set("m1")
    assert await disk_threads(look) == ("disk", "m1")
    with pytest.raises(ZeroDivisionError):
        await disk_threads(divmod, 1, 0)


async def test_a_cancelled_caller_leaves_only_when_its_job_is_over(disk_threads):
    began, go_on, over = threading.Event(), threading.Event(), []

    def work() -> None:
        began.set()
        over.append(go_on.wait(10))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(disk_threads, work)
        await disk_threads(began.wait, 10)
        tasks.cancel_scope.cancel()
        go_on.set()
    assert over == [True]


async def test_a_disk_that_hangs_does_not_hold_up_who_only_asks_whether_it_answers(disk_threads):
    go_on = threading.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(disk_threads, go_on.wait, 10)
        await anyio.wait_all_tasks_blocked()
        with anyio.move_on_after(0.01) as patience:
            await disk_threads.respond()
        assert patience.cancelled_caught
        go_on.set()
    await disk_threads.respond()


async def test_the_loop_is_woken_once_for_all_jobs_that_are_over_by_then(disk_threads, monkeypatch):
    loop, woken = asyncio.get_running_loop(), []
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda call: (woken.append(call), wake(call)))
    held = threading.Barrier(3)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(disk_threads, held.wait, 10)
        await anyio.wait_all_tasks_blocked()
        held.wait(10)  # the loop stands still here, while both end
        while len(disk_threads._done) < 2:
            pass
    assert len(woken) == 1


async def test_what_nobody_waits_for_is_written_before_what_comes_after_a_failure():
    written: list[list[int]] = []

    async def write(items: list[int]) -> None:
        written.append(items)
        if len(written) == 1:
            raise OSError(errno.EIO, "broken")

    writer = GroupWriter(write)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        failed, carried = writer.put(1), writer.carry(2)
        await failed.done.wait()
        assert failed is carried
        assert failed.error is not None
        await writer.put(3).done.wait()
        tasks.cancel_scope.cancel()
    assert written == [[1, 2], [2, 3], []]
    assert writer.put(4).error is CLOSED


async def test_a_journal_that_cannot_be_closed_ends_the_process_and_does_not_hang_it(tmp_path):
    class Uncloseable(FaultyFile):
        def close(self) -> None:
            super().close()
            raise OSError(errno.EIO, "broken")

    class Disk(PosixDisk):
        def append(self, path):
            return Uncloseable(super().append(path), lambda: None)

    store = FileStore(tmp_path, Disk(), offload=inline, journal_offload=inline, now=Clock())
    await store.open([])
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        async with anyio.create_task_group() as tasks:
            store.start(tasks, None)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()


class Offload:
    """Notes the files of each write. Nothing is written before ``go``."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.files: list[list[str]] = []

    async def __call__(self, function, disk, replacements):
        self.files.append([one.path.name for one in replacements])
        await self.go.wait()
        return function(disk, replacements)


async def replace(checkpoints: Checkpoints, path: Path, outcomes: dict[str, object]) -> None:
    try:
        await checkpoints.replace(path, path.name.encode(), True)
        outcomes[path.name] = path.read_bytes()
    except OSError as error:
        outcomes[path.name] = error.errno


async def test_files_that_wait_share_a_write_and_one_that_cannot_be_replaced_fails_alone(tmp_path):
    disk, offload, outcomes = FaultyDisk(), Offload(), {}
    disk.refuse["create broken.tmp"] = OSError(errno.EIO, "broken")
    checkpoints, first = Checkpoints(disk, offload), [f"first-{n}" for n in range(WRITERS)]
    async with anyio.create_task_group() as tasks:
        for name in (*first, "a", "broken", "b"):
            tasks.start_soon(replace, checkpoints, tmp_path / name / name, outcomes)
            await anyio.wait_all_tasks_blocked()
        assert offload.files == [[name] for name in first], "each writes its own"
        offload.go.set()
    assert offload.files[WRITERS:] == [["a", "broken", "b"]], "one hop for all that waited"
    assert outcomes == {name: name.encode() for name in (*first, "a", "b")} | {"broken": errno.EIO}


async def test_every_file_of_a_crowd_is_replaced_by_a_few_writers(tmp_path):
    offload, outcomes = Offload(), {}
    checkpoints, names = Checkpoints(FaultyDisk(), offload), [f"{n:03}" for n in range(200)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(replace, checkpoints, tmp_path / name / name, outcomes)
        await anyio.wait_all_tasks_blocked()
        assert len(offload.files) == WRITERS
        offload.go.set()
    assert outcomes == {name: name.encode() for name in names}
    assert sorted(name for files in offload.files for name in files) == names
    assert len(offload.files) < len(names) / SHARE


async def test_a_write_that_breaks_off_makes_no_file_durable_and_the_next_one_goes_on(tmp_path):
    gate, outcomes = Offload(), {}

    async def offload(function, disk, replacements):
        if replacements[0].path.name == "bug":
            return await gate(int, disk, replacements)  # a TypeError
        return function(disk, replacements)

    async def break_off(checkpoints: Checkpoints) -> None:
        with pytest.raises(TypeError):
            await checkpoints.replace(tmp_path / "bug", b"", True)

    checkpoints = Checkpoints(FaultyDisk(), offload)
    async with anyio.create_task_group() as tasks:
        for _ in range(WRITERS + 1):
            tasks.start_soon(break_off, checkpoints)
            await anyio.wait_all_tasks_blocked()
        for name in map(str, range(SHARE)):
            tasks.start_soon(replace, checkpoints, tmp_path / name / name, outcomes)
            await anyio.wait_all_tasks_blocked()
        assert not outcomes
        gate.go.set()
    last = str(SHARE - 1)
    beside = dict.fromkeys(map(str, range(SHARE - 1)))
    assert outcomes == {**beside, last: last.encode()}, "those of the same share fail, without an errno"


async def test_a_cancelled_task_waits_until_its_file_is_replaced(tmp_path):
    offload = Offload()
    checkpoints, path = Checkpoints(FaultyDisk(), offload), tmp_path / "a" / "a"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(replace, checkpoints, path, {})
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        await anyio.lowlevel.cancel_shielded_checkpoint()
        assert not path.exists()
        offload.go.set()
    assert path.read_bytes() == b"a"
