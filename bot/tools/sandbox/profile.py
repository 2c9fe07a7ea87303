"""What a command finds around it, whichever layer: the system it can read, its environment, its limits. Pure."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
"""Read-only, and only as far as they exist."""

SETTINGS = (
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
"""What of /etc programs need to start; nothing in it is secret."""

SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one command. Bytes, seconds, counts.

    ``address_space``, ``cpu_s``, ``file_size`` and ``open_files`` hold for each process, ``processes`` and
    ``memory`` for all of them, ``scratch`` for each of /tmp and /dev/shm. ``output`` is what it may write to stdout
    and stderr before it is taken for a flood; ``kept`` is what is kept of each one's head, and of its tail. ``spare``
    is the share of the disk that it leaves free, or half of what was free when that was less.
    """

    address_space: int = 4 * 2**30
    cpu_s: int = 600
    file_size: int = 512 * 2**20
    open_files: int = 1024
    processes: int = 256
    memory: int = 2**30
    scratch: int = 64 * 2**20
    output: int = 32 * 2**20
    kept: int = 64 * 2**10
    spare: float = 0.05


def environment(home: str, tmp: str) -> dict[str, str]:
    """Return all that a command inherits: nothing of the bot's own."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": home,
        "TMPDIR": tmp,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def shell() -> str:
    """Return the shell that runs commands here."""
    return next((path for path in SHELLS if os.access(path, os.X_OK)), SHELLS[-1])


def system_paths() -> tuple[str, ...]:
    return tuple(path for path in (*SYSTEM, *SETTINGS) if Path(path).exists())
