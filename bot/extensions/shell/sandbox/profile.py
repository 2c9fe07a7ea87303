"""What each layer gives a command: the system paths it can read, its environment and its limits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
"""Shown read-only if they exist."""

CONFIGURATION = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
"""The parts of /etc that programs need; nothing in them is secret."""

SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one command, in bytes, seconds and counts.

    ``address_space``, ``cpu_s``, ``file_size`` and ``open_files`` hold for each process, ``processes`` and
    ``memory`` for all of them, ``scratch`` for each of /tmp and /dev/shm. A command that writes more than ``output``
    to stdout or stderr is stopped; ``captured`` bytes of the head and of the tail of each are returned.
    ``min_free`` is the share of the disk that must stay free, or half of the free share if that is less.
    """

    address_space: int = 4 * 2**30
    cpu_s: int = 600
    file_size: int = 512 * 2**20
    open_files: int = 1024
    processes: int = 256
    memory: int = 2**30
    scratch: int = 64 * 2**20
    output: int = 32 * 2**20
    captured: int = 64 * 2**10
    min_free: float = 0.05


DEFAULT_LIMITS = Limits()


def environment(home: str, tmp: str) -> dict[str, str]:
    """Return the whole environment of a command: nothing comes from the bot's own."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
        "TMPDIR": tmp,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def shell() -> str:
    """Return the path of the shell that runs commands."""
    return next((path for path in SHELLS if os.access(path, os.X_OK)), SHELLS[-1])


def system_paths() -> tuple[str, ...]:
    return tuple(path for path in (*SYSTEM, *CONFIGURATION) if Path(path).exists())
