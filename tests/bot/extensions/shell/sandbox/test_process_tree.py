"""Whatever a command leaves behind is dead when it is over: at its end, its time-out, a stop, a kill -9 of the bot."""

import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from bot.ports.errors import ToolBusy
from tests.bot.extensions.shell.sandbox.sandboxes import (
    assert_no_processes,
    ran,
    real,
    sandbox_named,
    small,
    wait_for_processes,
)
from threads.background import background_tasks

pytestmark = real

NAMES = (
    "bubblewrap-packaged",
    pytest.param("bubblewrap-system", marks=pytest.mark.slow),
    "landlock",
    pytest.param("landlock-1", marks=pytest.mark.slow),
    pytest.param("unsafe-host", marks=pytest.mark.slow),
)

SOME = ("bubblewrap-packaged", "landlock", pytest.param("unsafe-host", marks=pytest.mark.slow))

ESCAPEES = {
    "a child in the background": "sleep {n} &",
    "a child in a session of its own": "setsid sleep {n} &",
    "a daemon": "(setsid sh -c 'sleep {n} & exit' &) ",
    "one that is deaf to signals": "setsid sh -c 'trap \"\" TERM HUP INT; sleep {n}; sleep {n}' &",
}


@pytest.fixture
async def sandbox(request, tmp_path):
    return await sandbox_named(request.param, tmp_path)


@pytest.fixture
def everyone(marker):
    return "\n".join(escapee.format(n=marker) for escapee in ESCAPEES.values())


@pytest.fixture
def marker():
    """A number of seconds that nobody else sleeps for."""
    return f"98{uuid4().int % 10**12}"


@pytest.mark.parametrize("sandbox", NAMES, indirect=True)
async def test_what_is_left_running_dies_with_the_command(sandbox, marker, tmp_path):
    for escapee in ESCAPEES.values():
        start = anyio.current_time()
        result = await ran(
            sandbox, f"{escapee.format(n=marker)}\nsleep 0.1; echo done; exit 7", tmp_path / "w"
        )
        assert (result.outcome, result.exit_code, result.stdout) == ("exited", 7, "done\n")
        assert anyio.current_time() - start < 5
        await assert_no_processes(marker)


@pytest.mark.parametrize("sandbox", NAMES, indirect=True)
async def test_the_tree_dies_at_the_time_out_and_what_it_wrote_is_kept(sandbox, marker, everyone, tmp_path):
    start = anyio.current_time()
    result = await ran(sandbox, f"echo begun; {everyone}\nsleep {marker}", tmp_path / "w", 1)
    assert (result.outcome, result.exit_code, result.stdout) == ("timeout", None, "begun\n")
    assert anyio.current_time() - start < 4
    await assert_no_processes(marker)


@pytest.mark.parametrize("sandbox", NAMES, indirect=True)
async def test_the_tree_dies_when_the_caller_is_stopped(sandbox, marker, everyone, tmp_path):
    async with background_tasks() as tasks:
        tasks.start_soon(ran, sandbox, f"{everyone}\nsleep {marker}", tmp_path / "w")
        await wait_for_processes(f"sleep\0{marker}", 4)
        start = anyio.current_time()
    assert anyio.current_time() - start < 2
    await assert_no_processes(marker, 0.5)


@pytest.mark.parametrize("name", NAMES)
async def test_the_tree_dies_when_the_bot_is_killed(name, marker, everyone, tmp_path):
    await sandbox_named(name, tmp_path)
    bot = subprocess.Popen(
        [sys.executable, "-m", __name__, name, str(tmp_path), f"{everyone}\nsleep {marker}"]
    )
    await wait_for_processes(f"sleep\0{marker}", 4)
    bot.kill()
    assert bot.wait() == -signal.SIGKILL
    await assert_no_processes(marker)


@pytest.mark.parametrize("name", SOME)
async def test_a_fork_bomb_ends_at_its_time_and_others_go_on(name, marker, tmp_path):
    sandbox = await sandbox_named(name, tmp_path, small(processes=64))
    bomb = f"b() {{ b | b & }}; b; sleep 100 # {marker}"
    result = await ran(sandbox, bomb, tmp_path / "w", 1)
    assert result.outcome in {"timeout", "exited", "flood"}
    await assert_no_processes(marker, 5)
    assert (await ran(sandbox, "echo fine", tmp_path / "w")).stdout == "fine\n"


@pytest.mark.parametrize("name", SOME)
async def test_a_flood_of_output_is_stopped_and_its_two_ends_are_kept(name, tmp_path):
    sandbox = await sandbox_named(name, tmp_path, small(captured=1000, output=2**20))
    result = await ran(sandbox, "echo head; yes; echo never", tmp_path / "w")
    assert result.outcome == "flood"
    assert result.stdout.startswith("head\ny\ny\n") and result.stdout.endswith("y\ny\n")
    assert result.left_out > 2**20 - 2000
    assert len(result.stdout) < 3000


@pytest.mark.parametrize("name", SOME)
async def test_memory_is_bounded_for_all_processes_together(name, tmp_path, monkeypatch):
    monkeypatch.setattr("bot.extensions.shell.sandbox.run.WATCH_S", 0.05)
    sandbox = await sandbox_named(name, tmp_path, small(memory=150_000_000))
    hungry = "head -c 60000000 /dev/zero | tail -c 60000000 | (sleep 20; cat >/dev/null) &"
    result = await ran(sandbox, f"{hungry} {hungry} {hungry} {hungry} wait", tmp_path / "w")
    assert result.outcome == "memory"
    result = await ran(sandbox, f"{hungry} sleep 0.5", tmp_path / "w")
    assert result.outcome == "exited"


@pytest.mark.parametrize("sandbox", SOME, indirect=True)
async def test_a_command_that_fills_the_disk_is_stopped(sandbox, tmp_path, monkeypatch):
    monkeypatch.setattr("bot.extensions.shell.sandbox.run.WATCH_S", 0.05)
    filled = tmp_path / "w" / "filled"
    monkeypatch.setattr(
        "bot.extensions.shell.sandbox.run.free_share", lambda _: 0.02 if filled.exists() else 0.06
    )
    assert (await ran(sandbox, "sleep 0.3", tmp_path / "w")).outcome == "exited"
    assert (await ran(sandbox, "touch filled; sleep 20", tmp_path / "w")).outcome == "disk"


@pytest.mark.parametrize("sandbox", SOME, indirect=True)
async def test_a_command_has_no_input_and_none_of_our_environment(sandbox, tmp_path, monkeypatch):
    monkeypatch.setenv("CANARY", "of the bot")
    result = await ran(
        sandbox, "read line || echo no input; env | cut -d= -f1 | sort | tr '\\n' ' '", tmp_path / "w"
    )
    names = {"HOME", "LANG", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE", "SHLVL", "TERM", "TMPDIR", "_"}
    first, rest = result.stdout.split("\n")
    assert first == "no input" and set(rest.split()) - {"OLDPWD"} == names
    result = await ran(sandbox, "ls /proc/self/fd /dev/fd 2>/dev/null; : <&3", tmp_path / "w")
    assert result.exit_code == 1, "no descriptor of ours is open in it"


@pytest.mark.parametrize("sandbox", SOME, indirect=True)
async def test_a_command_is_never_part_of_a_text_that_a_shell_reads(sandbox, tmp_path):
    for command in ("echo '$0' \"$#\" --", "'", "--version", "$(", "-c"):
        result = await ran(sandbox, command, tmp_path / "w")
        assert result.outcome == "exited"
        assert "bubblewrap" not in result.stdout
    assert (await ran(sandbox, 'echo "$#"', tmp_path / "w")).stdout == "0\n"


@pytest.mark.parametrize("sandbox", SOME, indirect=True)
async def test_a_result_has_the_exit_code_or_128_and_the_signal(sandbox, tmp_path):
    for command, code in {"true": 0, "exit 42": 42, "kill -9 0": 137, "nosuch": 127}.items():
        assert (await ran(sandbox, command, tmp_path / "w")).exit_code == code, command


@pytest.mark.parametrize("name", ("bubblewrap-packaged", "landlock"))
async def test_commands_take_turns(name, tmp_path, monkeypatch):
    monkeypatch.setattr("bot.extensions.shell.sandbox.selection.AT_ONCE", 2)
    sandbox = await sandbox_named(name, tmp_path)
    most, ended = 0, []

    async def one(number):
        ended.append(
            (await ran(sandbox, f"sleep 0.1; echo fine # {tmp_path}", tmp_path / f"w{number}")).stdout
        )

    async def count():
        nonlocal most
        while len(ended) < 6:
            most = max(most, sum(w.exists() for w in (tmp_path / f"w{n}" for n in range(6))) - len(ended))
            await anyio.sleep(0.005)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        for number in range(6):
            tasks.start_soon(one, number)
    assert ended == ["fine\n"] * 6
    assert most == 2


@pytest.mark.parametrize("name", ("bubblewrap-packaged", "landlock"))
async def test_who_gets_no_turn_in_time_is_told_so(name, tmp_path, monkeypatch):
    monkeypatch.setattr("bot.extensions.shell.sandbox.selection.AT_ONCE", 1)
    sandbox = await sandbox_named(name, tmp_path)
    async with background_tasks() as tasks:
        tasks.start_soon(ran, sandbox, "sleep 5", tmp_path / "a")
        await anyio.sleep(0.1)
        with pytest.raises(ToolBusy, match="not started"):
            await ran(sandbox, "touch ran", tmp_path / "b", 0.2)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("sandbox", SOME, indirect=True)
async def test_nothing_of_ours_stays_open_after_many_runs(sandbox, tmp_path):
    await ran(sandbox, "true", tmp_path / "w")
    before = len([*Path("/proc/self/fd").iterdir()])
    for command in ("true", "sleep 9 &", "yes | head -c 100000"):
        await ran(sandbox, command, tmp_path / "w")
    assert len([*Path("/proc/self/fd").iterdir()]) == before


if __name__ == "__main__":
    from tests.bot.extensions.shell.sandbox import sandboxes

    async def main(name, folder, command):
        layer = sandboxes.layer_named(name)
        await sandboxes.ran(
            sandboxes.Sandbox(layer, "", offload=sandboxes.offload), command, Path(folder) / "w", 60
        )

    anyio.run(main, *sys.argv[1:])
