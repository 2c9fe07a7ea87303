"""Measures what the kernel does not limit for a tree of processes: memory, free disk space, removed files."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from .launcher import descendants

PAGE = os.sysconf("SC_PAGE_SIZE")
_PSS_ANON = re.compile(rb"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)


def exceeds_memory(root: int, limit: int, proc: Path = Path("/proc")) -> bool:
    """Return whether *root* and its descendants together use more than *limit* bytes of their own memory.

    The first sum is quick, and counts what a fork shares with its parent twice. Only if it is too much, the kernel
    computes each one's share, for which it walks all pages.
    """
    pids = [root, *descendants(root, str(proc))]
    return (
        sum(_unshared(pid, proc) for pid in pids) > limit
        and sum(_proportional(pid, proc) for pid in pids) > limit
    )


def free_share(folder: Path) -> float:
    """Return the free share of the disk of *folder*: of its bytes or of its files, whichever is less."""
    disk = os.statvfs(folder)
    shares = ((disk.f_bavail, disk.f_blocks), (disk.f_favail, disk.f_files))
    return min((available / total for available, total in shares if total), default=1.0)


def free_space(folder: Path) -> tuple[int, int]:
    """Return how many bytes and how many files the disk of *folder* has room for."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_favail


def removed_but_open(root: int, device: int) -> int:
    """Return the bytes of removed files on *device* that *root* and its descendants hold open."""
    sizes: dict[int, int] = {}
    for pid in (root, *descendants(root)):
        with suppress(OSError):  # ended, or not ours to read
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    state = entry.stat()
                    if stat.S_ISREG(state.st_mode) and not state.st_nlink and state.st_dev == device:
                        sizes[state.st_ino] = state.st_blocks * 512
    return sum(sizes.values())


def _unshared(pid: int, proc: Path) -> int:
    try:
        _size, resident, shared = (proc / str(pid) / "statm").read_bytes().split()[:3]
    except (OSError, ValueError):
        return 0
    return max(0, int(resident) - int(shared)) * PAGE


def _proportional(pid: int, proc: Path) -> int:
    try:
        found = _PSS_ANON.search((proc / str(pid) / "smaps_rollup").read_bytes())
    except OSError:  # ended, or not ours to read
        found = None
    return int(found[1]) * 1024 if found else _unshared(pid, proc)
