"""The choice of a layer, and the reasons for none."""

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bot.extensions.shell.sandbox import bubblewrap, layers, open_sandbox, selection
from bot.extensions.shell.sandbox.probe import Observation, find_leaks
from bot.extensions.shell.sandbox.profile import Limits
from bot.extensions.shell.sandbox.run import CommandResult
from bot.ports.errors import SandboxFailed, ToolDenied

from . import container
from .sandboxes import layer_named, ran, real, sandbox_named
from .sandboxes import offload as threaded


async def chosen(mode, folder):
    return await open_sandbox(mode, folder, offload=threaded)


async def test_off_is_off_and_says_so(tmp_path):
    sandbox = await chosen("off", tmp_path)
    assert sandbox.layer == "off"
    with pytest.raises(ToolDenied, match="switched off"):
        await ran(sandbox, "touch ran", tmp_path / "w")
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("mode", ["auto", "bubblewrap", "landlock", "unsafe-host"])
async def test_root_is_refused_whatever_the_settings_say(mode, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    sandbox = await chosen(mode, tmp_path)
    assert sandbox.layer == "off" and "root" in sandbox.why


@pytest.mark.parametrize(
    ("platform", "machine", "word"), [("darwin", "arm64", "Linux"), ("linux", "riscv64", "x86_64")]
)
async def test_where_there_are_no_walls_there_are_no_commands(platform, machine, word, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(selection.platform, "machine", lambda: machine)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    sandbox = await chosen("unsafe-host", tmp_path)
    assert sandbox.layer == "off" and word in sandbox.why


@real
async def test_landlock_is_taken_where_bubblewrap_fails_and_the_reason_is_told(tmp_path, monkeypatch):
    if not layers.landlock_abi():
        pytest.skip("no Landlock here")
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "find_binaries", lambda: (str(broken),))
    sandbox = await chosen("auto", tmp_path / "data")
    assert sandbox.layer == "landlock" and "AppArmor" in sandbox.why
    only = await chosen("bubblewrap", tmp_path / "data")
    assert only.layer == "off" and "AppArmor" in only.why


@real
async def test_where_nothing_works_it_is_off_and_never_on_the_host(tmp_path, monkeypatch):
    monkeypatch.setattr(bubblewrap, "find_binaries", lambda: ())
    monkeypatch.setattr(selection, "landlock_abi", lambda: 0)
    sandbox = await chosen("auto", tmp_path)
    assert sandbox.layer == "off"
    assert "install the package bubblewrap" in sandbox.why and "landlock" in sandbox.why


@real
async def test_a_layer_that_lets_something_through_is_not_used(tmp_path, monkeypatch):
    """The walls are left out, and the layer still calls itself Landlock."""
    if not layers.landlock_abi():
        pytest.skip("no Landlock here")
    monkeypatch.setattr(bubblewrap, "find_binaries", lambda: ())
    plan = layers.Landlock.plan
    monkeypatch.setattr(
        layers.Landlock, "plan", lambda layer, *args: plan(replace(layer, confined=False), *args)
    )
    sandbox = await chosen("auto", tmp_path)
    assert sandbox.layer == "off"
    for leak in ("can be read", "can be written", "services of this host", "signals"):
        assert leak in sandbox.why


@real
async def test_a_bubblewrap_that_shares_what_it_claims_to_separate_is_not_used(tmp_path, monkeypatch):
    await sandbox_named("bubblewrap-system", tmp_path)  # or it is skipped
    layer = layer_named("bubblewrap-system")
    arguments = bubblewrap.arguments

    def without(wall):
        return lambda *args, **options: [word for word in arguments(*args, **options) if word != wall]

    for wall in ("--unshare-net", "--unshare-ipc", "--unshare-uts"):
        monkeypatch.setattr(bubblewrap, "arguments", without(wall))
        assert await selection.find_fault(layer, tmp_path, Limits(), threaded), wall
    monkeypatch.setattr(bubblewrap, "arguments", arguments)
    assert not await selection.find_fault(layer, tmp_path, Limits(), threaded)


@real
async def test_data_in_a_folder_that_commands_can_read_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "system_paths", lambda paths=layers.system_paths(): (*paths, str(tmp_path)))
    sandbox = await chosen("landlock", tmp_path / "data")
    assert sandbox.layer == "off" and "files outside can be read" in sandbox.why


@real
def test_in_a_container_that_allows_no_namespaces_landlock_is_chosen_and_holds(tmp_path):
    here = Path(__file__)
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", str(tmp_path / "in")]
    tests = [f"{here}::test_inside_a_container", str(here.with_name("test_escapes.py"))]
    done = subprocess.run(
        [sys.executable, "-m", container.__name__, *options, *tests, "-k", "landlock or container"],
        env={**os.environ, "THREADFAST_IN_A_CONTAINER": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]


@pytest.mark.skipif("THREADFAST_IN_A_CONTAINER" not in os.environ, reason="run by the test before")
async def test_inside_a_container(tmp_path):
    sandbox = await chosen("auto", tmp_path)
    assert sandbox.layer == "landlock"
    assert "bubblewrap does not work" in sandbox.why and "containers" in sandbox.why
    assert (await ran(sandbox, "echo fine", tmp_path / "w")).stdout == "fine\n"


WORKS = "limits 0 1 1 1 1 1\nworks\n"


def observation(stdout=WORKS, stderr="", outcome="exited", **changes):
    return Observation(
        CommandResult(outcome, 0, stdout, stderr),
        **{
            "made_inside": True,
            "secret_changed": False,
            "made_outside": False,
            "connected": False,
            **changes,
        },
        secret="s3cr3t",
        namespaces={"net": "net:[1]"},
        environment={"TOKEN": "xoxb-12345678"},
    )


@pytest.mark.parametrize(
    ("observed", "leak"),
    [
        (observation(), None),
        (observation(secret_changed=True), "written"),
        (observation(made_outside=True), "written"),
        (observation(connected=True), "services"),
        (observation(WORKS + "s3cr3t"), "read"),
        (observation(stderr="cat: s3cr3t"), "read"),
        (observation(WORKS + "TOKEN=xoxb-12345678\n"), "environment"),
        (observation(WORKS + "A=b␀TOKEN=xoxb-12345678␀"), "environment"),
        (observation(WORKS + "ns net net:[1]\n"), "shared"),
        (observation(WORKS + "ns net net:[2]\n"), None),
        (observation(WORKS + "reached the bot\n"), "signals"),
        (observation("works\n"), "no limits"),
        (observation("works\nlimits 0 unlimited 1 1 1 1\n"), "no limits"),
    ],
)
def test_the_probe_finds_each_leak(observed, leak):
    leaks = find_leaks(("net",), observed)
    assert bool(leaks) == bool(leak)
    assert not leak or leak in leaks[0]


@pytest.mark.parametrize("observed", [observation(made_inside=False), observation(outcome="timeout")])
def test_a_layer_in_which_nothing_works_is_not_used(observed):
    with pytest.raises(SandboxFailed):
        find_leaks((), observed)


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh"])
@real
async def test_limits_hold_whichever_shell_there_is(shell, tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "shell", lambda: shell)
    sandbox = await sandbox_named("bubblewrap-system", tmp_path, Limits(open_files=2**30, processes=99))
    result = await ran(sandbox, "ulimit -c; ulimit -n; (ulimit -u || ulimit -p) 2>/dev/null", tmp_path / "w")
    core, files, processes = result.stdout.split()
    assert (core, processes) == ("0", "99")
    assert files == str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]), "a lower limit of the host stays"


@real
async def test_walls_that_cannot_be_put_up_run_nothing(tmp_path, monkeypatch):
    sandbox = await sandbox_named("landlock", tmp_path)
    monkeypatch.setattr(layers, "system_paths", lambda: ("/no such folder",))
    with pytest.raises(SandboxFailed) as raised:
        await ran(sandbox, "touch ran", tmp_path / "w")
    assert "no such folder" not in str(raised.value) and str(tmp_path) not in str(raised.value)
    assert not (tmp_path / "w" / "ran").exists()
