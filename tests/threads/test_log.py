"""The log of a thread while the disk refuses some of its lines."""

from __future__ import annotations

import errno
import logging

import anyio

from tests.sim.loop import virtual_time
from tests.world import T1, T2, FaultyDisk, Platform, Scripted, inline, message, running
from threads.log import MAX_WAITING, Log, LogEntry, entries
from threads.store.disk import File

anyio_backend = virtual_time


def entry(number: int) -> LogEntry:
    return LogEntry(at="2026-11-21T10:00:00+00:00", kind="message", message_id=f"m{number}")


class RefusesOnce(FaultyDisk):
    """Refuses to open the first log, once, and counts the tries."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def append(self, path) -> File:
        self.tries += 1
        if self.tries == 1:
            raise OSError(errno.EIO, "broken")
        return super().append(path)


async def test_later_lines_do_not_overtake_those_that_the_disk_refused(tmp_path):
    disk, written = RefusesOnce(), []
    log = Log(disk, folder=lambda thread: tmp_path / thread.channel, offload=inline)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.run)
        for number, thread in enumerate((T1, T1, T2)):
            log.put(thread, [entry(number)], lambda number=number: written.append(number))
        await anyio.wait_all_tasks_blocked()
        assert written == [2], "another thread's log goes on"
        log.put(T1, [entry(3)], lambda: written.append(3))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    lines = entries(disk, tmp_path / T1.channel / "log.jsonl")
    assert [line.message_id for line in lines] == ["m0", "m1", "m3"]
    assert written == [2, 0, 1, 3]


async def test_a_log_that_refuses_is_tried_and_reported_once_for_all_its_lines(tmp_path, caplog):
    disk = FaultyDisk()
    disk.refuse["append"] = OSError(errno.EIO, "broken")
    log = Log(disk, folder=lambda _: tmp_path, offload=inline)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.run)
        with caplog.at_level(logging.WARNING):
            for number in range(MAX_WAITING + 1):
                last = log.put(T1, [entry(number)], lambda: None)
            await last.done.wait()
            lines = [record.getMessage() for record in caplog.records]
        tasks.cancel_scope.cancel()
    expected = ["log.write_failed: [Errno 5] broken", f"log.behind: entries kept: {MAX_WAITING}, dropped: 1"]
    assert lines == expected


async def test_lines_that_the_disk_had_refused_are_there_before_their_thread_is_erased(tmp_path):
    disk, platform = FaultyDisk(), Platform()
    disk.refuse["append log.jsonl"] = OSError(errno.ENOSPC, "No space left on device")
    async with running(tmp_path, platform, Scripted(), disk=disk) as bot:
        await platform.exchange(bot, message(1, "late words"))
        disk.refuse.clear()
        await bot.registry.log_written(T1)
        assert "late words" in next(tmp_path.rglob("log.jsonl")).read_text()
