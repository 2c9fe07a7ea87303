"""Files are written whole or not at all, only in the workspace, and only as many as it may hold."""

import errno
import os
import signal
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from functools import partial
from unittest.mock import Mock

import anyio
import pytest

from bot.extensions.files.write import WriteArguments, WriteFile
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput
from bot.tools.files import write as module
from bot.tools.files.quota import Quota, measure_usage
from bot.tools.files.write import Writer
from tests.tool_context import tool_context
from tests.world import FaultyDisk, inline
from threads.store.disk import PosixDisk


@pytest.fixture
def context(tmp_path):
    (tmp_path / "thread").mkdir()
    (tmp_path / "secret").write_text("key")
    return tool_context(tmp_path / "thread" / "workspace")


def writer(*, disk=None, max_bytes=10_000_000, max_entries=100, offload=inline):
    return Writer(disk or PosixDisk(), offload, Quota(max_bytes, max_entries))


async def write(context, path, content="new", by=None):
    return await WriteFile(by or writer())(WriteArguments(path=path, content=content), context)


def everything(context):
    return sorted(
        p.relative_to(context.workspace.parent).as_posix() for p in context.workspace.parent.rglob("*")
    )


async def test_a_file_is_written_with_the_folders_it_needs_and_for_nobody_else(context):
    expected = {"written": "a/b/c.txt", "size": 7, "created": True}
    assert await write(context, "/workspace/a/b/c.txt", "häää") == expected
    assert (context.workspace / "a/b/c.txt").read_text() == "häää"
    assert (context.workspace / "a/b/c.txt").stat().st_mode & 0o777 == 0o600
    assert (context.workspace / "a").stat().st_mode & 0o077 == 0
    assert everything(context) == ["workspace", "workspace/a", "workspace/a/b", "workspace/a/b/c.txt"]


async def test_a_file_that_is_there_is_replaced_and_keeps_its_mode_but_no_special_bits(context):
    await write(context, "run.sh", "old")
    (context.workspace / "run.sh").chmod(0o4755)
    assert not (await write(context, "run.sh", "new"))["created"]
    assert (context.workspace / "run.sh").read_text() == "new"
    assert (context.workspace / "run.sh").stat().st_mode & 0o7777 == 0o755


async def test_half_an_emoji_is_written_as_a_question_mark(context):
    await write(context, "a", "x\ud83d")
    assert (context.workspace / "a").read_text() == "x?"


REFUSALS = {
    ToolDenied: [
        "../x", "../secret", "/etc/x", "/workspace/../x", "up/x", "up/new/x", "sub/up/x", "link", "near", "dangling",
        "proc/self/mem", "twin", "pipe", "a\0b",
    ],
    ToolInvalidInput: [
        ".", "", "sub", "sub/", "mine/x", "mine/new/x", "x" * 300, "new/" + "x" * 300, "a\nb", "a\x1b[2Jb", "new\r/x",
        "gpj.\u202eexe", "a\u2066b",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("path", "refusal"), [(path, kind) for kind in REFUSALS for path in REFUSALS[kind]])
async def test_no_hostile_path_is_written_to_and_nothing_changes(context, path, refusal):
    inside = context.workspace
    (inside / "sub").mkdir(parents=True)
    (inside / "mine").write_text("mine")
    for name, target in {"up": "..", "sub/up": "../..", "link": "../../secret", "near": "mine"}.items():
        (inside / name).symlink_to(target)
    (inside / "dangling").symlink_to("nowhere")
    (inside / "proc").symlink_to("/proc")
    os.link(inside.parent.parent / "secret", inside / "twin")
    os.mkfifo(inside / "pipe")
    before = everything(context)
    with pytest.raises(refusal) as refused:
        await write(context, path)
    assert [name for name in everything(context) if name not in before] in ([], ["workspace/new"])
    assert (inside.parent.parent / "secret").read_text() == "key"
    assert (inside / "mine").read_text() == "mine"
    assert str(inside) not in str(refused.value)


async def test_a_folder_that_is_swapped_for_a_link_meanwhile_leads_no_write_out(context):
    (context.workspace / "sub").mkdir(parents=True)
    there = context.workspace.parent / "there"
    there.mkdir()
    (context.workspace / "trap").symlink_to(there)
    done, by = threading.Event(), writer()

    def swap():
        while not done.is_set():
            for source, target in (("sub", "kept"), ("trap", "sub"), ("sub", "trap"), ("kept", "sub")):
                with suppress(OSError):  # what is written to makes new folders, in the way of this
                    (context.workspace / source).rename(context.workspace / target)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for n in range(60):
            with suppress(ToolError):
                by.write(context.workspace, "sub/x", b"%d" % n)
    finally:
        done.set()
        swapping.join()
    assert list(there.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG])
@pytest.mark.parametrize("call", ["create", "write"])
async def test_a_disk_that_refuses_is_told_in_words_and_the_old_file_stays(context, code, call, monkeypatch):
    disk = FaultyDisk()
    by = writer(disk=disk)
    await write(context, "a", "old", by)
    error = OSError(code, os.strerror(code))
    if call == "create":
        disk.refuse["create"] = error
    else:
        monkeypatch.setattr(os, "write", Mock(side_effect=error))
    with pytest.raises(ToolError) as refused:
        await write(context, "a", "new", by)
    assert str(context.workspace) not in str(refused.value)
    monkeypatch.undo()
    assert (context.workspace / "a").read_text() == "old"
    assert everything(context) == ["workspace", "workspace/a"]


def test_a_file_size_limit_of_the_system_is_told_in_words_and_the_old_file_stays(tmp_path):
    program = f"""
import anyio, resource
from pathlib import Path
from bot.ports.errors import ToolError
from bot.tools.files.quota import Quota
from bot.tools.files.write import Writer
from threads.store.disk import PosixDisk
writer, workspace = Writer(PosixDisk(), None, Quota(10**9, 100)), Path({str(tmp_path / "workspace")!r})
writer.write(workspace, "a", b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    writer.write(workspace, "a", b"x" * 2000)
except ToolError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "larger than this system allows" in done.stdout
    assert (tmp_path / "workspace" / "a").read_text() == "old"
    assert not (tmp_path / "write.tmp").exists()


def test_a_process_that_is_killed_leaves_the_old_file_or_the_new_one_and_the_next_write_works(tmp_path):
    """The writer is killed where it pleases; what is there is always one of the two whole contents."""
    workspace = tmp_path / "workspace"
    program = f"""
import os, sys
from pathlib import Path
from bot.tools.files.quota import Quota
from bot.tools.files.write import Writer
from threads.store.disk import PosixDisk
writer, workspace = Writer(PosixDisk(), None, Quota(10**9, 100)), Path({str(workspace)!r})
writer.write(workspace, "a", b"0" * 300_000)
for _ in sys.stdin:
    if pid := os.fork():
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("dead", flush=True)
    while not pid:
        for letter in b"0123456789":
            writer.write(workspace, "a", bytes([letter]) * 300_000)
"""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([sys.executable, "-c", program], **streams) as child:
        for n in range(20):
            child.stdin.write("go\n")
            pid = int(child.stdout.readline())
            threading.Event().wait(0.0005 * n)
            os.kill(pid, signal.SIGKILL)
            assert child.stdout.readline() == "dead\n"
            data = (workspace / "a").read_bytes()
            assert len(data) == 300_000
            assert len(set(data)) == 1
            assert [entry.name for entry in workspace.iterdir()] == ["a"]
        child.stdin.close()
    writer().write(workspace, "a", b"after")
    assert (workspace / "a").read_bytes() == b"after"
    assert [entry.name for entry in tmp_path.iterdir()] == ["workspace"]


async def test_a_file_that_is_too_large_is_refused(context, monkeypatch):
    monkeypatch.setattr(module, "MAX_WRITTEN", 5)
    with pytest.raises(ToolInvalidInput, match="larger"):
        await write(context, "a", "äää")


async def test_a_workspace_holds_no_more_bytes_than_its_quota_and_a_file_may_always_shrink(context):
    by = writer(max_bytes=100)
    await write(context, "a", "x" * 60, by)
    with pytest.raises(ToolError, match="would hold more than"):
        await write(context, "b", "x" * 41, by)
    await write(context, "b", "x" * 40, by)
    await write(context, "a", "x" * 59, by)
    (context.workspace / "c").write_bytes(b"x" * 100)
    await write(context, "a", "x", writer(max_bytes=100))
    with pytest.raises(ToolError):
        await write(context, "a", "xx", writer(max_bytes=100))
    assert not (context.workspace / "d").exists()


async def test_a_workspace_holds_no_more_files_and_folders_than_its_quota(context):
    by = writer(max_entries=3)
    await write(context, "a/b/c", "x", by)
    with pytest.raises(ToolError, match="3 files"):
        await write(context, "d", "x", by)
    await write(context, "a/b/c", "y", by)
    (context.workspace / "a/b/c").unlink()
    await write(context, "d", "x", by)


def test_a_sparse_file_counts_as_what_it_takes_and_a_count_ends_early(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    assert measure_usage(tmp_path, 10).size < 1_000_000
    for n in range(20):
        (tmp_path / f"f{n}").touch()
    assert measure_usage(tmp_path, 10).entries == 11


async def test_writes_side_by_side_are_each_whole(context):
    by = writer(offload=anyio.to_thread.run_sync)
    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(partial(write, context, f"f{n % 3}", f"{n}" * 1000, by))
    for name in ("f0", "f1", "f2"):
        assert len(set((context.workspace / name).read_text()[:1])) == 1
    assert everything(context) == ["workspace", "workspace/f0", "workspace/f1", "workspace/f2"]
    lock = weakref.ref(by.lock(context.workspace))
    assert lock() is None, "a lock that nobody holds is dropped"


def test_always_here_is_for_every_file_of_the_workspace():
    assert WriteArguments(path="./a", content="x").subject() == "a"
    assert WriteArguments(path="a", content="x").always() == "*"
