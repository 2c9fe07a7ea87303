"""Threads of the disk, and batches with one writer."""

from __future__ import annotations

import asyncio
import errno
import threading
from contextvars import ContextVar
from functools import partial

import anyio
import pytest

from tests.world import Clock, FaultyFile, inline
from threads.file_store import FileStore
from threads.store.disk import PosixDisk
from threads.store.disk_threads import DiskThreads
from threads.store.group_commit import CLOSED, GroupWriter

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]  # a task that is shielded can wait for ever

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


async def test_a_cancelled_caller_gets_what_its_job_returned_and_ends_after_that(disk_threads):
    began, go_on, over = threading.Event(), threading.Event(), []

    def work() -> bool:
        began.set()
        return go_on.wait(10)

    async def call(*, by_scope: bool) -> None:
        over.append(await disk_threads(work))
        assert by_scope, "asyncio tells a task once"
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(call, by_scope=True))
        await disk_threads(began.wait, 10)
        tasks.cancel_scope.cancel()
        asyncio.get_running_loop().call_later(0.01, go_on.set)
    assert over == [True]

    began.clear(), go_on.clear()
    task = asyncio.ensure_future(call(by_scope=False))
    await disk_threads(began.wait, 10)
    task.cancel()
    await anyio.wait_all_tasks_blocked()
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


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


async def test_the_end_of_the_process_waits_only_so_long_for_a_disk_that_hangs(disk_threads):
    go_on, refused = threading.Event(), []
    writer = GroupWriter(partial(disk_threads, lambda items: items and go_on.wait(10)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        hung = writer.put(1)
        await anyio.wait_all_tasks_blocked()
        waiting = writer.put(2)
        tasks.cancel_scope.cancel()
        disk_threads.end_within(0.01)
    go_on.set()
    for batch in (hung, waiting):
        assert isinstance(batch.error, TimeoutError)
    with pytest.raises(TimeoutError):
        await disk_threads(refused.append, 1)
    assert not refused


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


async def test_what_nobody_waits_for_is_in_the_last_batch_even_if_the_end_comes_before_its_write():
    written: list[int] = []
    writer = GroupWriter(partial(inline, written.extend))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        await anyio.wait_all_tasks_blocked()
        refused = writer.put(1)
        writer.carry(2)
        tasks.cancel_scope.cancel()  # the writer is awake already, and is cancelled when it gives its batch away
    assert written == [2]
    assert refused.error is CLOSED


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
