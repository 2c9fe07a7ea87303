"""Measures what the kernel does not limit for a tree of processes: memory, free disk space, removed files."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
_SHARE = re.compile(rb"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)


def exceeds(root: int, limit: int, proc: Path = Path("/proc")) -> bool:
    """Return whether *root* and its descendants together use more than *limit* bytes of their own memory.

    The first sum is quick, and counts what a fork shares with its parent twice. Only if it is too much, the kernel
    computes each one's share, for which it walks all pages.
    """
    pids = tree(root, proc)
    return sum(_own(pid, proc) for pid in pids) > limit and sum(_share(pid, proc) for pid in pids) > limit


def room(folder: Path) -> float:
    """Return the free share of the disk of *folder*: of its bytes or of its files, whichever is less."""
    disk = os.statvfs(folder)
    shares = ((disk.f_bavail, disk.f_blocks), (disk.f_favail, disk.f_files))
    return min((available / total for available, total in shares if total), default=1.0)


def free(folder: Path) -> tuple[int, int]:
    """Return how many bytes and how many files the disk of *folder* has room for."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize, disk.f_favail


def removed_but_open(root: int, device: int, proc: Path = Path("/proc")) -> int:
    """Return the bytes of removed files on *device* that processes of the tree hold open."""
    held: dict[int, int] = {}
    for pid in tree(root, proc):
        with suppress(OSError):  # ended, or not ours to read
            for entry in (proc / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    state = entry.stat()
                    if stat.S_ISREG(state.st_mode) and not state.st_nlink and state.st_dev == device:
                        held[state.st_ino] = state.st_blocks * 512
    return sum(held.values())


def tree(root: int, proc: Path = Path("/proc")) -> list[int]:
    """Return *root* and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):  # ended since it was listed
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, ())
    return found


def _own(pid: int, proc: Path) -> int:
    try:
        _size, resident, shared = (proc / str(pid) / "statm").read_bytes().split()[:3]
    except (OSError, ValueError):
        return 0
    return max(0, int(resident) - int(shared)) * PAGE


def _share(pid: int, proc: Path) -> int:
    try:
        found = _SHARE.search((proc / str(pid) / "smaps_rollup").read_bytes())
    except OSError:  # ended, or not ours to read
        found = None
    return int(found[1]) * 1024 if found else _own(pid, proc)
