"""The self-probe: before a layer is used, a command behind it tries what must fail.

The result is observed from outside: files are compared, a listener notices connections, and the output is searched
for secrets.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from bot.ports.errors import SandboxFailed
from threads.store.disk import Offload

from .layers import Layer
from .profile import Limits, environment
from .run import CommandResult, run

PROBE_S = 15.0
"""Seconds that a probe may take on a slow machine."""

SIGNALLED = "reached the bot"

_SCRIPT = """
echo inside > made-inside && echo works
cat {secret}
echo x >> {secret}
echo x > {outside}
ls {folder}
env
cat /proc/*/environ
for kind in cgroup ipc mnt net pid user uts; do echo "ns $kind $(readlink /proc/self/ns/$kind)"; done
(exec 3<>/dev/tcp/127.0.0.1/{port}) || nc -w 1 127.0.0.1 {port} < /dev/null
echo "limits $(ulimit -c) $(ulimit -v) $(ulimit -t) $(ulimit -f) $(ulimit -n) $(ulimit -u || ulimit -p)"
kill -0 {bot} && echo {signalled}
exit 0
"""
_EXPECTED = frozenset({*environment("", ""), "PWD", "OLDPWD", "SHLVL", "_"})
"""Names that are in a command's own environment too."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a probe did, and what it must not see: the canary, our namespaces and our environment."""

    result: CommandResult
    made_inside: bool
    secret_changed: bool
    made_outside: bool
    connected: bool
    secret: str
    namespaces: Mapping[str, str]
    environment: Mapping[str, str]


async def probe(layer: Layer, parent: Path, limits: Limits, offload: Offload) -> tuple[str, ...]:
    """Return the leaks of *layer*, in words. *parent* is the folder of the workspaces.

    Raises `SandboxFailed` if the layer does not work at all, with its output as the cause.
    """
    temporary = await offload(_make_folder, parent)
    with temporary, socket.create_server(("127.0.0.1", 0)) as listener:
        folder, secret = Path(temporary.name), secrets.token_hex(8)
        (folder / "secret").write_text(secret)
        script = _SCRIPT.format(
            secret=shlex.quote(str(folder / "secret")),
            outside=shlex.quote(str(folder / "outside")),
            folder=shlex.quote(str(folder)),
            port=listener.getsockname()[1],
            bot=os.getpid(),
            signalled=SIGNALLED,
        )
        deadline = anyio.current_time() + PROBE_S
        limits = replace(limits, captured=2**20)
        observation = Observation(
            await run(layer, script, folder / "workspace", deadline, limits, offload),
            made_inside=(folder / "workspace" / "made-inside").exists(),
            secret_changed=(folder / "secret").read_text() != secret,
            made_outside=(folder / "outside").exists(),
            connected=_accepted(listener),
            secret=secret,
            namespaces=_namespaces(),
            environment=dict(os.environ),
        )
        return find_leaks(layer.namespaces, observation)


def find_leaks(namespaces: tuple[str, ...], observation: Observation) -> tuple[str, ...]:
    """Return the leaks in words; raises `SandboxFailed` if the layer does not work at all."""
    result = observation.result
    if not observation.made_inside or "works" not in result.stdout or result.outcome != "exited":
        raise SandboxFailed("A command did not work inside it.") from OSError(result.stderr)
    printed = result.stdout + result.stderr
    limits = next((line for line in result.stdout.splitlines() if line.startswith("limits ")), "unlimited")
    # Variables in /proc end with a NUL, which is visible in the output.
    lines = printed.replace("\u2400", "\n").splitlines()
    ours = {f"{name}={value}" for name, value in observation.environment.items() if name not in _EXPECTED}
    leaks = {
        "files outside can be read": observation.secret in printed,
        "files outside can be written": observation.secret_changed or observation.made_outside,
        "the bot's environment is visible": not ours.isdisjoint(lines),
        "services of this host can be reached": observation.connected,
        "the bot can be sent signals": SIGNALLED in printed and "pid" not in namespaces,
        "what it claims to separate is shared": any(
            f"ns {kind} {observation.namespaces.get(kind, '?')}\n" in printed for kind in namespaces
        ),
        "its processes have no limits": "unlimited" in limits,
    }
    return tuple(leak for leak, found in leaks.items() if found)


def _make_folder(parent: Path) -> TemporaryDirectory[str]:
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = TemporaryDirectory(prefix="probe-", dir=parent, ignore_cleanup_errors=True)
    (Path(folder.name) / "workspace").mkdir(mode=0o700)
    return folder


def _namespaces() -> dict[str, str]:
    found = {}
    for kind in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts"):
        with suppress(OSError):
            found[kind] = str(Path(f"/proc/self/ns/{kind}").readlink())
    return found


def _accepted(listener: socket.socket) -> bool:
    """Return whether somebody has connected to the listener."""
    listener.setblocking(False)
    with suppress(BlockingIOError):
        listener.accept()[0].close()
        return True
    return False
