"""The self-probe: before a layer is used, a command behind it tries what must fail.

The result is observed from outside: files are compared, a listener sees connections, and the output is searched for
what must not be in it.
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
_OWN = frozenset({*environment("", ""), "PWD", "OLDPWD", "SHLVL", "_"})
"""Names that are in a command's own environment too."""


@dataclass(frozen=True, slots=True)
class Observation:
    result: CommandResult
    made_inside: bool
    secret_changed: bool
    made_outside: bool
    connected: bool


@dataclass(frozen=True, slots=True)
class Canaries:
    secret: str
    namespaces: Mapping[str, str]
    environment: Mapping[str, str]


async def probe(layer: Layer, parent: Path, limits: Limits, offload: Offload) -> tuple[str, ...]:
    """Return in words what *layer* lets through. *parent* is the folder that has the workspaces.

    Raises `SandboxFailed` if the layer does not work at all, with its output as the cause.
    """
    temporary = await offload(_make_folder, parent)
    with temporary, socket.create_server(("127.0.0.1", 0)) as listener:
        folder = Path(temporary.name)
        canaries = Canaries(secrets.token_hex(8), _namespaces(), dict(os.environ))
        (folder / "secret").write_text(canaries.secret)
        script = _SCRIPT.format(
            secret=shlex.quote(str(folder / "secret")),
            outside=shlex.quote(str(folder / "outside")),
            folder=shlex.quote(str(folder)),
            port=listener.getsockname()[1],
            bot=os.getpid(),
            signalled=SIGNALLED,
        )
        deadline = anyio.current_time() + PROBE_S
        result = await run(
            layer, script, folder / "workspace", deadline, replace(limits, kept=2**20), offload
        )
        return find_leaks(layer.namespaces, canaries, _observe(result, folder, listener, canaries))


def find_leaks(namespaces: tuple[str, ...], canaries: Canaries, seen: Observation) -> tuple[str, ...]:
    """Return in words what the layer let through; raises `SandboxFailed` if it does not work at all."""
    result = seen.result
    if not seen.made_inside or "works" not in result.stdout or result.ended != "exited":
        raise SandboxFailed("A command did not work inside it.") from OSError(result.stderr)
    printed = result.stdout + result.stderr
    limits = next((line for line in result.stdout.splitlines() if line.startswith("limits ")), "unlimited")
    # Variables in /proc end with a NUL, which is visible in the output.
    lines = printed.replace("\u2400", "\n").splitlines()
    ours = {f"{name}={value}" for name, value in canaries.environment.items() if name not in _OWN}
    leaks = {
        "files outside can be read": canaries.secret in printed,
        "files outside can be written": seen.secret_changed or seen.made_outside,
        "the bot's environment is visible": not ours.isdisjoint(lines),
        "services of this host can be reached": seen.connected,
        "the bot can be sent signals": SIGNALLED in printed and "pid" not in namespaces,
        "what it claims to separate is shared": any(
            f"ns {kind} {canaries.namespaces.get(kind, '?')}\n" in printed for kind in namespaces
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


def _observe(result: CommandResult, folder: Path, listener: socket.socket, canaries: Canaries) -> Observation:
    listener.setblocking(False)
    try:
        listener.accept()[0].close()
        connected = True
    except BlockingIOError:
        connected = False
    return Observation(
        result,
        made_inside=(folder / "workspace" / "made-inside").exists(),
        secret_changed=(folder / "secret").read_text() != canaries.secret,
        made_outside=(folder / "outside").exists(),
        connected=connected,
    )
