"""Many files replaced at once. In virtual time a task that nobody wakes is a deadlock, and fails its test at once."""

from __future__ import annotations

import errno
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.sim.loop import virtual_time
from tests.world import FaultyDisk
from threads.store.checkpoints import SHARE, WRITERS, Checkpoints

anyio_backend = virtual_time


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


async def test_writers_that_end_together_are_followed_by_as_many(tmp_path):
    async def offload(function, disk, replacements):
        await anyio.sleep(1)
        return function(disk, replacements)

    checkpoints, began = Checkpoints(FaultyDisk(), offload), anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for name in [f"{n:02}" for n in range(WRITERS + WRITERS * SHARE)]:
            tasks.start_soon(replace, checkpoints, tmp_path / name / name, {})
    assert anyio.current_time() - began == 2


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


async def test_a_write_that_breaks_off_does_not_reach_a_task_whose_file_was_not_in_it(tmp_path):
    gate, outcomes = Offload(), {}

    async def offload(function, disk, replacements):
        broken = any(one.path.name == "bug" for one in replacements)
        return await gate(int if broken else function, disk, replacements)

    async def break_off(path: Path) -> None:
        with pytest.raises(TypeError):
            await checkpoints.replace(path, b"", True)

    checkpoints = Checkpoints(FaultyDisk(), offload)
    async with anyio.create_task_group() as tasks:
        for name in [f"first-{n}" for n in range(WRITERS)]:
            tasks.start_soon(replace, checkpoints, tmp_path / name / name, outcomes)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(break_off, tmp_path / "bug")
        await anyio.wait_all_tasks_blocked()
        for name in map(str, range(SHARE)):
            tasks.start_soon(replace, checkpoints, tmp_path / name / name, outcomes)
        await anyio.wait_all_tasks_blocked()
        gate.go.set()
        # They come when the writers have ended, and before or after the first of those that wait has begun.
        for name in ("late", "later", "latest"):
            tasks.start_soon(replace, checkpoints, tmp_path / name / name, outcomes)
    assert [outcomes[name] for name in ("late", "later", "latest")] == [b"late", b"later", b"latest"]


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
