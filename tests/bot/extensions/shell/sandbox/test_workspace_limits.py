"""What commands may leave in a workspace: on every layer, in one burst or in many, however it is hidden."""

import json
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from bot.config.settings import Settings
from bot.extensions.shell.sandbox import Sandbox
from bot.extensions.shell.sandbox.resource_watch import removed_but_open
from bot.extensions.shell.sandbox.workspace_meter import Meter
from bot.extensions.shell.tool import Shell, ShellArguments
from bot.ports.errors import ToolError
from bot.tools.files.quota import Quota, measure_usage
from tests.tool_context import tool_context
from tests.world import opened_tools

from .sandboxes import PYTHON, offload, ran, real, sandbox_named, with_python

MB = 1_000_000
LAYERS = ("bubblewrap-system", "bubblewrap-packaged", "landlock", "unsafe-host")
OVERSHOOT = 300 * MB
"""What a machine that writes 1 GB/s, and is loaded, writes between two looks and until it is dead."""


@pytest.fixture
def folder():
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(params=LAYERS)
async def sandbox(request, folder):
    return await sandbox_named(request.param, folder, quota=Quota(20 * MB, 200))


def usage(folder):
    return measure_usage(folder / "w", 10**6)


@real
async def test_three_commands_write_no_more_than_the_limit(sandbox, folder):
    """They wrote 180 MB into 20 MB."""
    for number in range(3):
        result = await ran(sandbox, f"head -c 60000000 /dev/zero > f{number}; ls", folder / "w")
        assert "limits.workspace_mb" in result.limit_reached
    assert usage(folder).size <= 20 * MB


@real
async def test_a_command_that_writes_for_ever_is_stopped_while_it_runs(sandbox, folder):
    many = "i=0; while :; do i=$((i+1)); head -c 5000000 /dev/zero > f$i; done"
    began = anyio.current_time()
    result = await ran(sandbox, many, folder / "w")
    assert result.outcome == "full"
    assert anyio.current_time() - began < 10
    assert "20 MB (limits.workspace_mb)" in result.limit_reached
    assert usage(folder).size < 20 * MB + OVERSHOOT


@real
async def test_many_tiny_files_in_deep_folders_are_stopped_too(sandbox, folder):
    deep = "for i in 1 2 3 4 5 6 7 8 9; do mkdir d; cd d; done; while :; do i=$((i+1)); : > f$i; done"
    result = await ran(sandbox, deep, folder / "w")
    assert result.outcome == "full"
    assert "200 of them (limits.workspace_files)" in result.limit_reached


@real
async def test_commands_side_by_side_share_the_limit(sandbox, folder):
    ends = []

    async def one(number):
        loop = f"while :; do i=$((i+1)); head -c 1000000 /dev/zero > f{number}-$i; done"
        ends.append((await ran(sandbox, loop, folder / "w")).outcome)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(one, number)
    assert ends == ["full"] * 3
    assert usage(folder).size < 20 * MB + OVERSHOOT


@real
async def test_in_a_full_workspace_reading_and_deleting_go_on_and_writing_does_not(sandbox, folder):
    (folder / "w").mkdir()
    (folder / "w/theirs").write_bytes(b"x" * 30 * MB)
    read = await ran(sandbox, "wc -c < theirs; ls 2>/dev/null", folder / "w")
    assert (read.outcome, read.exit_code) == ("exited", 0)
    assert "30000000" in read.stdout
    assert "It holds 30.0 MB in 1 files" in read.limit_reached
    for number in range(3):
        written = await ran(sandbox, f"head -c 1000000 /dev/zero > new{number}", folder / "w")
        assert written.exit_code != 0
    assert usage(folder).size == 30 * MB, "not a byte more"
    assert (folder / "w/theirs").stat().st_size == 30 * MB, "and nothing is taken away"
    freed = await ran(sandbox, "rm theirs new*; echo ok > small; cat small", folder / "w")
    assert freed.limit_reached == ""
    again = await ran(sandbox, "echo ok > small && cat small", folder / "w")
    assert again.stdout == "ok\n"


@real
async def test_a_file_that_was_there_can_be_changed_as_long_as_there_is_room(sandbox, folder):
    (folder / "w").mkdir()
    (folder / "w/data").write_bytes(b"x" * 15 * MB)
    at_its_end = "printf y | dd of=data bs=1 seek=14999999 conv=notrunc 2>/dev/null && tail -c 1 data"
    result = await ran(sandbox, at_its_end, folder / "w")
    assert (result.exit_code, result.stdout) == (0, "y")


@real
async def test_a_file_of_many_names_and_a_hole_count_as_what_they_take(sandbox, folder):
    result = await ran(
        sandbox,
        "head -c 5000000 /dev/zero > a; for i in 1 2 3 4 5 6 7 8; do ln a b$i; done; truncate -s 15000000 hole",
        folder / "w",
    )
    assert (result.outcome, result.limit_reached) == ("exited", "")
    more = await ran(sandbox, "truncate -s 999999999 hole", folder / "w")
    assert more.exit_code != 0


@real
async def test_files_that_it_removed_and_holds_open_count_too(sandbox, folder):
    hides = 'for i in 3 4 5 6 7 8 9; do eval "exec $i>f$i"; rm f$i; head -c 15000000 /dev/zero >&$i; done; sleep 20'
    result = await ran(sandbox, hides, folder / "w", 15)
    if shutil.disk_usage(folder).free > 10**9:  # a disk that others fill meanwhile tells nothing
        assert result.outcome == "full"
        assert "It held" in result.limit_reached


@real
@pytest.mark.parametrize("name", ["bubblewrap-packaged", "unsafe-host"])
async def test_a_folder_that_nobody_can_look_into_hides_nothing(name, folder):
    """Behind Landlock no mode can be changed."""
    sandbox = await sandbox_named(name, folder, quota=Quota(20 * MB, 200))
    try:
        result = await ran(
            sandbox, "mkdir d; head -c 9000000 /dev/zero > d/f; chmod 0 d; sleep 20", folder / "w"
        )
        assert result.outcome == "full"
        assert "cannot be opened" in result.limit_reached
        assert (await ran(sandbox, "echo x > more", folder / "w")).exit_code != 0
        assert (await ran(sandbox, "chmod 700 d && rm -r d", folder / "w")).limit_reached == ""
    finally:
        for path in (folder / "w").glob("d"):
            path.chmod(0o700)


@real
@pytest.mark.parametrize("name", LAYERS)
async def test_room_that_no_size_shows_cannot_be_taken(name, folder, monkeypatch):
    with_python(monkeypatch)
    sandbox = await sandbox_named(name, folder, quota=Quota(20 * MB, 200))
    takes = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
f = os.open("f", os.O_CREAT | os.O_RDWR)
print(libc.fallocate(f, 1, ctypes.c_long(0), ctypes.c_long(10**9)), os.fstat(f).st_blocks)
"""
    result = await ran(sandbox, f"{PYTHON} '{takes}'", folder / "w")
    if name == "unsafe-host":  # no filter there, but the room on the disk
        return
    assert result.stdout == "-1 0\n", result.stderr


@real
@pytest.mark.parametrize("name", LAYERS)
async def test_the_model_reads_which_limit_was_met_and_what_to_do(name, folder):
    tool = Shell(await sandbox_named(name, folder, quota=Quota(MB, 200)), offload)
    context = tool_context(folder / "w")
    result = await tool(ShellArguments(command="head -c 2000000 /dev/zero > f; true"), context)
    assert "its limit is 1 MB (limits.workspace_mb)" in result.result["workspace"]
    assert "reading and deleting still work" in result.result["workspace"]
    (folder / "w/f").unlink()
    with pytest.raises(ToolError) as raised:
        await tool(ShellArguments(command="while :; do i=$((i+1)); echo x > f$i; done"), context)
    assert "limits.workspace_files" in json.dumps(raised.value.partial)
    assert "still there" in raised.value.suggestion


def test_a_large_workspace_is_not_measured_all_the_time(tmp_path, monkeypatch):
    now, measurements = 0.0, []

    def measure(*arguments):
        nonlocal now
        now += 1.0  # it takes a second
        measurements.append(arguments)
        return measure_usage(*arguments)

    monkeypatch.setattr("bot.extensions.shell.sandbox.workspace_meter.measure_usage", measure)
    meter = Meter(Quota(100 * MB, 10), tmp_path, clock=lambda: now)
    for _ in range(99):
        now += 0.1
        assert not meter.exceeded(os.getpid())
    assert len(measurements) == 1
    now += 0.5
    meter.exceeded(os.getpid())
    assert len(measurements) == 2


def test_files_without_a_name_are_found_where_they_are_open(tmp_path):
    with (tmp_path / "f").open("wb") as file:
        file.write(b"x" * 10_000)
        file.flush()
        device = tmp_path.stat().st_dev
        before = removed_but_open(os.getpid(), device)
        (tmp_path / "f").unlink()
        assert removed_but_open(os.getpid(), device) - before >= 10_000


async def test_the_limits_of_the_settings_are_those_of_commands_and_file_tools(tmp_path, monkeypatch):
    opened = []

    async def open_sandbox(_mode, _folder, *, offload, quota):
        opened.append(quota)
        return Sandbox(None, "not here", offload=offload)

    monkeypatch.setattr("bot.extensions.shell.sandbox.open_sandbox", open_sandbox)
    settings = Settings(
        data=tmp_path, limits={"workspace_mb": 7, "workspace_files": 9}, tools={"enabled": ("shell",)}
    )
    async with opened_tools(settings) as tool_set:
        [quota] = opened
        assert (quota.max_bytes, quota.max_entries) == (7 * MB, 9)
        assert quota is tool_set.writer.quota
