"""What the kernel bounds for no tree of processes: its memory, how full it makes the disk, removed files."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
_SHARE = re.compile(rb"^Pss_Anon:\s+(\d+) kB", re.MULTILINE)


def exceeds(root: int, limit: int, proc: Path = Path("/proc")) -> bool:
    """Return whether *root* and its descendants together hold more than *limit* bytes of memory of their own.

    What a fork shares with its parent is counted for both at first, which is quick; only when that is too much, each
    one's share is asked for, which makes the kernel walk all its pages.
    """
    pids = tree(root, proc)
    return sum(_own(pid, proc) for pid in pids) > limit and sum(_share(pid, proc) for pid in pids) > limit


def room(folder: Path) -> float:
    """Return which share of the disk that *folder* is on is free: of its bytes or of its files, whichever is less."""
    about = os.statvfs(folder)
    shares = ((about.f_bavail, about.f_blocks), (about.f_favail, about.f_files))
    return min((free / whole for free, whole in shares if whole), default=1.0)


def free(folder: Path) -> tuple[int, int]:
    """Return how many bytes and how many more files the disk that *folder* is on has room for."""
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize, about.f_favail


def removed_but_open(root: int, device: int, proc: Path = Path("/proc")) -> int:
    """Return the bytes of files on *device* that have no name any more and that a process of the tree holds open."""
    held: dict[int, int] = {}
    for pid in tree(root, proc):
        with suppress(OSError):  # gone, or not ours to look into
            for entry in (proc / str(pid) / "fd").iterdir():
                with suppress(OSError):
                    about = entry.stat()
                    if stat.S_ISREG(about.st_mode) and not about.st_nlink and about.st_dev == device:
                        held[about.st_ino] = about.st_blocks * 512
    return sum(held.values())


def tree(root: int, proc: Path = Path("/proc")) -> list[int]:
    """Return *root* and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):  # gone since it was listed
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
    except OSError:  # gone, or not ours to look into
        found = None
    return int(found[1]) * 1024 if found else _own(pid, proc)
