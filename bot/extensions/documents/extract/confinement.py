"""Limits for a child, even if a file takes it over: it cannot outlive the bot, exhaust the machine, use files or TCP.

| limit                   | where                     | it keeps the child from                                   |
|-------------------------|---------------------------|-----------------------------------------------------------|
| resource limits         | everywhere, memory: Linux | memory and time beyond its share, writing, new processes  |
| its own alarm           | everywhere                | running on when nobody is left to kill it                 |
| a signal at our death   | Linux                     | the same, at once                                         |
| Landlock                | Linux 5.13, TCP since 6.7 | opening any file but Python's own; TCP                    |
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path

MEMORY = {"text": 512_000_000, "site": 512_000_000, "picture": 768_000_000}
"""Bytes of address space: a picture of 50 megapixels is decoded and turned into another."""

CPU_S, WALL_S = 20, 40
"""Seconds; the second is for a child that nobody is left to kill."""

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Linux's numbers, the same on every architecture."""

_ALL_FILES, _REFER, _TRUNCATE, _TCP, _READ = 0x1FFF, 1 << 13, 1 << 14, 3, 4 | 8
"""Rights of linux/landlock.h; `_READ` is files and folders."""


def confine(parent: int, memory: int) -> None:
    """Set the limits; exits if the *parent* has died already."""
    signal.alarm(WALL_S)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        with suppress(OSError):  # a kernel or container without it: the limits hold without
            Path("/proc/self/oom_score_adj").write_text("1000", "ascii")  # killed before the bot is
        _restrict_files(libc)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    os.nice(5)
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_NPROC, 0),
    ):
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            # At the soft limit of its time it gets a signal that says why it ended.
            resource.setrlimit(kind, (least - 1 if kind == resource.RLIMIT_CPU else least, least))
        except ValueError:  # macOS limits no address space; the other limits hold
            if sys.platform == "linux":
                raise


def _restrict_files(libc: ctypes.CDLL) -> None:
    """Allow only Python, its libraries and these modules to be opened, if the kernel can."""
    if (version := libc.syscall(_CREATE_RULESET, None, 0, 1)) < 1:
        return
    files = _ALL_FILES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    about = struct.pack("<QQ", files, _TCP) if version >= 4 else struct.pack("<Q", files)
    ruleset = libc.syscall(_CREATE_RULESET, about, len(about), 0)
    for folder in _python_folders():
        with suppress(FileNotFoundError):
            fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("<Qi", _READ, fd), 0)
            os.close(fd)
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _python_folders() -> set[str]:
    """Return Python's folders and ours, but not that of a checkout, which may hold the bot's data."""
    ours = Path(__file__).parents[4]
    folders = {*map(Path, sys.path), Path(os.__file__).parent}
    libraries = {folder for folder in folders if folder != ours or folder.name.endswith("-packages")}
    system = {"/lib", "/lib64", "/usr/lib", "/usr/lib64"}
    return {*map(str, libraries), *system, str(Path(__file__).parents[1]), str(ours / "threads")}
