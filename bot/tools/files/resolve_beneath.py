"""Opening what lies in a workspace, and nothing else: the kernel resolves the path, so no check comes before a use.

On Linux `openat2` itself refuses whatever leaves the workspace or goes through a link. Where it is missing, each part
of a path is opened from the folder before it without following links, which comes to the same.
"""

from __future__ import annotations

import errno
import os
import platform
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound
from threads.store.attachments import FOLDER as ATTACHMENTS

INSIDE = "/workspace"
"""What the workspace is called in the shell; a path may begin with it."""

TOOL_OUTPUT = "tool-output"
"""The folder of what tools keep: texts that were too long, pictures."""

MARK = "outside"
"""A file beside the workspace: something from outside came in. No command in the workspace can take it away."""

MADE_HERE = "made-here"
"""A file beside the workspace: `TOOL_OUTPUT` was begun with what was made here. Without it, and in the data of older
versions, the folder itself says that something from outside came in.
"""

FOLDER = os.O_RDONLY | os.O_DIRECTORY
FILE = os.O_RDONLY | os.O_NONBLOCK

_ALWAYS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_OPENAT2 = 437
_RESOLVE = 0x02 | 0x04 | 0x08
"""RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, see openat2(2)."""

_LINK = (ToolDenied, "{} is a link, or lies behind one: links are not followed.")
_NO_FILE = (ToolDenied, "{} is no regular file.")
_NO_FOLDER = (ToolInvalidInput, "{} is a file, or leads through one, where a folder is needed.")
_KEPT = (ToolError, "The permissions of {} do not allow it.")
_FULL = (ToolError, "The disk is full, so nothing was changed. Tell the person.")
_REFUSALS: Mapping[int, tuple[type[ToolError], str]] = {
    errno.ELOOP: _LINK,
    errno.EXDEV: _LINK,
    errno.ENXIO: _NO_FILE,
    errno.ENODEV: _NO_FILE,
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.EINVAL: (ToolInvalidInput, "{} is not a valid file name."),
    errno.EISDIR: (ToolInvalidInput, "{} is a folder."),
    errno.ENAMETOOLONG: (ToolInvalidInput, "The path is too long: use a shorter name."),
    errno.EACCES: _KEPT,
    errno.EPERM: _KEPT,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: (ToolError, "The disk cannot be written to, so nothing was changed."),
    errno.EFBIG: (ToolError, "The file would be larger than this system allows; nothing was changed."),
}

_NOT_THE_LAST_WORD = (errno.ENOSYS, errno.EPERM, errno.EAGAIN, errno.ENOTDIR)
"""No such call here, or it is kept from us (an old kernel, a container's filter); and a link taken for a file."""


def parts_of(path: str) -> tuple[str, ...]:
    """Return the names on the way to *path*, none for the workspace itself.

    Raises `ToolDenied` for a path that leads out. `..` is taken back by its letters: no link is ever followed.
    """
    if path == INSIDE or path.startswith(f"{INSIDE}/"):
        path = path.removeprefix(INSIDE).lstrip("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part == ".." or path.startswith("/") or "\0" in part:
            raise ToolDenied("The path leads out of the workspace.", suggestion="Use a path relative to it.")
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def named(path: str) -> str:
    """Return the one form of *path* that rules are matched with. Raises `ToolDenied` as `parts_of`."""
    return "/".join(parts_of(path)) or "."


@contextmanager
def beneath(workspace: Path, path: str, flags: int) -> Iterator[int]:
    """Open *path* in *workspace*; raises `ToolError`s that name only what the model named."""
    parts = parts_of(path)
    with ExitStack() as opened:
        with told(path):
            root = os.open(workspace, FOLDER | _ALWAYS)
            opened.callback(os.close, root)
            fd = open_at(root, parts, flags)
            opened.callback(os.close, fd)
        yield fd


def open_at(folder: int, parts: Sequence[str], flags: int) -> int:
    """Open what *parts* lead to from *folder*, or that itself. Raises OSError, ELOOP for any link on the way."""
    try:
        return _by_the_kernel(folder, parts, flags | _ALWAYS)
    except OSError as error:
        if error.errno not in _NOT_THE_LAST_WORD:
            raise
    return by_steps(folder, parts, flags | _ALWAYS)


def by_steps(folder: int, parts: Sequence[str], flags: int) -> int:
    with ExitStack() as passed:
        for part in parts[:-1]:
            folder = _step(part, FOLDER | _ALWAYS, folder)
            passed.callback(os.close, folder)
        return _step(parts[-1] if parts else ".", flags, folder)


def _step(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def _by_the_kernel(folder: int, parts: Sequence[str], flags: int) -> int:
    call = _syscall()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return call(folder, os.fsencode("/".join(parts) or "."), struct.pack("=QQQ", flags, 0, _RESOLVE))


@cache
def _syscall() -> Callable[[int, bytes, bytes], int] | None:
    """Return openat2(2); None where it cannot be had."""
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "aarch64"):
        return None
    import ctypes  # noqa: PLC0415 - who touches no file need not wait for it

    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long

    def openat2(folder: int, path: bytes, how: bytes) -> int:
        found: int = function(
            ctypes.c_long(_OPENAT2), ctypes.c_int(folder), path, how, ctypes.c_size_t(len(how))
        )
        if found < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return found

    return openat2


@contextmanager
def told(path: str) -> Iterator[None]:
    """Turn what the system says about *path* into words for the model, which name nothing of this machine."""
    try:
        yield
    except FileNotFoundError:
        raise ToolNotFound(f"There is no {path[:200]!r} here.", suggestion="List the folder first.") from None
    except (OSError, ValueError) as error:
        raise _refusal(error, repr(path[:200])) from error


def _refusal(error: OSError | ValueError, path: str) -> ToolError:
    code = error.errno if isinstance(error, OSError) else errno.EINVAL
    kind, text = _REFUSALS.get(code or 0, (ToolError, "The disk reported an error with {}."))
    return kind(text.format(path))


def regular(fd: int, done: str) -> os.stat_result:
    """Return what is known of an open file that may be *done*; raises `ToolDenied` unless it is a regular file."""
    return plain(os.fstat(fd), done)


def plain(about: os.stat_result, done: str) -> os.stat_result:
    """Return *about* if it is of a regular file that has one name; another name could be anywhere."""
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        raise ToolDenied(f"Only regular files of this workspace can be {done}.")
    return about


def holds_outside_text(workspace: Path) -> bool:
    """Say whether text from outside was ever put into the workspace, wherever in it that is by now. Blocking."""
    mark = workspace.with_name(MARK)
    if os.path.lexists(mark):
        return True
    made_here = os.path.lexists(workspace.with_name(MADE_HERE))
    telling = (ATTACHMENTS,) if made_here else (ATTACHMENTS, TOOL_OUTPUT)
    if not any(os.path.lexists(workspace / folder) for folder in telling):
        return False
    with suppress(OSError):  # a disk that takes no mark: the folders still say it
        mark.touch(mode=0o600)
    return True


def mark_output(workspace: Path, *, outside: bool) -> None:
    """Note where a text comes from, before it is put into `TOOL_OUTPUT`. Blocking; raises OSError."""
    if outside or not holds_outside_text(workspace):
        workspace.with_name(MARK if outside else MADE_HERE).touch(mode=0o600)


def origin(workspace: Path) -> str:
    """Return what `bot.ports.tool.ToolOutput` calls the origin of a text from this workspace. Blocking."""
    return "file" if holds_outside_text(workspace) else ""
