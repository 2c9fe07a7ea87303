"""The self-probe: before a layer is used, a command behind it tries what must fail. Judged from outside it.

The command itself is never believed: files are looked at, a listener counts who called, what was printed is searched
for what must not be in it.
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
"""How long one probe may take, on the slowest of machines."""

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
kill -0 {bot} && echo reached the bot
exit 0
"""
_OWN = frozenset({*environment("", ""), "PWD", "OLDPWD", "SHLVL", "_"})
"""Names that a command's own environment has too."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What there was to see after the command."""

    ran: CommandResult
    made_inside: bool
    secret_changed: bool
    made_outside: bool
    connected: bool


@dataclass(frozen=True, slots=True)
class Canaries:
    secret: str
    namespaces: Mapping[str, str]
    environment: Mapping[str, str]
    pid_reached: str = "reached the bot"


async def probe(layer: Layer, beside: Path, limits: Limits, offload: Offload) -> tuple[str, ...]:
    """Return what *layer* lets through, in words; nothing for a layer that holds. *beside*: where workspaces are.

    Raises `SandboxFailed` when it does not work at all; its cause says what was printed.
    """
    folder = await offload(_prepared, beside)
    with folder, socket.create_server(("127.0.0.1", 0)) as listener:
        place = Path(folder.name)
        canaries = Canaries(secrets.token_hex(8), _namespaces(), dict(os.environ))
        (place / "secret").write_text(canaries.secret)
        script = _SCRIPT.format(
            secret=shlex.quote(str(place / "secret")),
            outside=shlex.quote(str(place / "outside")),
            folder=shlex.quote(str(place)),
            port=listener.getsockname()[1],
            bot=os.getpid(),
        )
        bounded = replace(limits, kept=2**20)
        ran = await run(layer, script, place / "workspace", anyio.current_time() + PROBE_S, bounded, offload)
        return find_leaks(layer.namespaces, canaries, _seen(ran, place, listener, canaries))


def find_leaks(namespaces: tuple[str, ...], canaries: Canaries, seen: Observation) -> tuple[str, ...]:
    """Return what came through the walls. Pure."""
    if not seen.made_inside or "works" not in seen.ran.stdout or seen.ran.ended != "exited":
        raise SandboxFailed("A command did not work inside it.") from OSError(seen.ran.stderr)
    printed = seen.ran.stdout + seen.ran.stderr
    ours = {f"{name}={value}" for name, value in canaries.environment.items() if name not in _OWN}
    open_walls = {
        "files outside can be read": canaries.secret in printed,
        "files outside can be written": seen.secret_changed or seen.made_outside,
        "the bot's environment is visible": not ours.isdisjoint(_lines(printed)),
        "services of this host can be reached": seen.connected,
        "the bot can be sent signals": canaries.pid_reached in printed and "pid" not in namespaces,
        "what it claims to separate is shared": any(
            f"ns {kind} {canaries.namespaces.get(kind, '?')}\n" in printed for kind in namespaces
        ),
    }
    limits = next((line for line in seen.ran.stdout.splitlines() if line.startswith("limits ")), "unlimited")
    open_walls["its processes have no limits"] = "unlimited" in limits
    return tuple(words for words, is_open in open_walls.items() if is_open)


def _lines(printed: str) -> list[str]:
    """Return the lines of what was printed; variables in /proc end with a NUL, which is visible by now."""
    return printed.replace("\u2400", "\n").splitlines()


def _prepared(beside: Path) -> TemporaryDirectory[str]:
    beside.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = TemporaryDirectory(prefix="probe-", dir=beside, ignore_cleanup_errors=True)
    (Path(folder.name) / "workspace").mkdir(mode=0o700)
    return folder


def _namespaces() -> dict[str, str]:
    found = {}
    for kind in ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts"):
        with suppress(OSError):
            found[kind] = str(Path(f"/proc/self/ns/{kind}").readlink())
    return found


def _seen(ran: CommandResult, place: Path, listener: socket.socket, canaries: Canaries) -> Observation:
    listener.setblocking(False)
    try:
        listener.accept()[0].close()
        connected = True
    except BlockingIOError:
        connected = False
    return Observation(
        ran,
        made_inside=(place / "workspace" / "made-inside").exists(),
        secret_changed=(place / "secret").read_text() != canaries.secret,
        made_outside=(place / "outside").exists(),
        connected=connected,
    )
