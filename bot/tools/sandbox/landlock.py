"""Landlock: the plan for a command that can open only its workspace and the system. `launcher` carries it out.

It is for hosts without namespaces, and it cannot hide everything: a command can see names, sizes and times of files
outside (not their content), guess process ids of the host, and read the workspace's path on the host.
What a command loses: changes of mode, owner or times by path (`chmod +x` fails; `sh script` works), sockets, and /tmp
(TMPDIR is the workspace).
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from pathlib import Path

from .profile import Limits, environment

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_MAKE_DEVICES, _MAKE_SOCKET = 1 << 6 | 1 << 11, 1 << 9
_TRUNCATE, _DEVICE = 1 << 14, 1 << 15
"""Rights on files, from linux/landlock.h."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def handled_rights(abi: int) -> tuple[int, int, int]:
    """Return the rights on files, the network and other processes that version *abi* of Landlock controls."""
    files = (1 << (13, 14, 15, 15, 16)[min(abi, 5) - 1]) - 1
    return files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0


def plan(
    *, abi: int, system: Sequence[str], workspace: Path, limits: Limits, program: bytes, walls: bool = True
) -> bytes:
    """Return the plan for the launcher; without *walls* it only sets limits and kills the whole tree at the end."""
    files, net, scoped = handled_rights(max(abi, 1))
    readable = _EXECUTE | _READ | _LIST
    rules = [(path, readable & files) for path in system]
    rules += [(path, (_READ | _WRITE | _TRUNCATE) & files) for path in DEVICES]
    rules.append((str(workspace), files & ~(_MAKE_DEVICES | _MAKE_SOCKET | _DEVICE)))
    home = str(workspace)
    return marshal.dumps(
        {
            "landlock": (files, net, scoped, rules) if walls else None,
            "filter": program if walls else b"",
            "workspace": home,
            "environment": environment(home, home),
            "address_space": limits.address_space,
            "cpu_s": limits.cpu_s,
            "file_size": limits.file_size,
            "open_files": limits.open_files,
            "processes": limits.processes,
        }
    )
