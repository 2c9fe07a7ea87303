"""Opens files beneath a folder only. The kernel resolves the path and follows no link.

On Linux `openat2` refuses a path that leaves the folder or goes through a link. Without it, each part of the path is
opened from the folder before it, with the same result.
"""

from __future__ import annotations

import errno
import os
import platform
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache

FOLDER = os.O_RDONLY | os.O_DIRECTORY
FILE = os.O_RDONLY | os.O_NONBLOCK

NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_OPENAT2 = 437
_RESOLVE = 0x02 | 0x04 | 0x08
"""RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, see openat2(2)."""

_TRY_STEPS = (errno.ENOSYS, errno.EPERM, errno.EAGAIN, errno.ENOTDIR)
"""The call is missing or forbidden (an old kernel, a container's filter), or the path has a link."""


@contextmanager
def closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def open_at(folder: int, parts: Sequence[str], flags: int) -> int:
    """Open the path *parts* beneath *folder*, or *folder* itself. Raises OSError, with ELOOP for a link in the path.

    No part may be "..". Raises ValueError for a name with a NUL.
    """
    path = os.fsencode("/".join(parts) or ".")
    if b"\0" in path:
        raise ValueError("a path has no NUL")
    if openat2 := find_openat2():
        try:
            return openat2(folder, path, struct.pack("=QQQ", flags | NO_LINK, 0, _RESOLVE))
        except OSError as error:
            if error.errno not in _TRY_STEPS:
                raise
    with ExitStack() as parents:
        for part in parts[:-1]:
            folder = parents.enter_context(closing(_step(part, FOLDER, folder)))
        return _step(parts[-1] if parts else ".", flags, folder)


def _step(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags | NO_LINK, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


@cache
def find_openat2() -> Callable[[int, bytes, bytes], int] | None:
    """Return openat2(2), or None if this system does not have it."""
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "aarch64"):
        return None
    import ctypes  # noqa: PLC0415 - not needed by a process that opens no file

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long

    def openat2(folder: int, path: bytes, how: bytes) -> int:
        fd: int = syscall(ctypes.c_long(_OPENAT2), ctypes.c_int(folder), path, how, ctypes.c_size_t(len(how)))
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return fd

    return openat2
