"""Paths in the workspace of a thread, files opened there, and whether text from outside came in."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound
from threads.store.attachments import FOLDER as ATTACHMENTS
from threads.store.attachments import safe_name
from threads.store.open_beneath import FILE, FOLDER, NO_LINK, closing, open_at

MOUNT_POINT = "/workspace"
"""The workspace's path in the shell; the path of a call may begin with it."""

TOOL_OUTPUT = "tool-output"
"""The folder for output of tools: texts that are too long for a result, and pictures."""

OUTSIDE_MARK = "outside"
"""A file that marks a workspace with text from outside. It is beside the workspace: commands cannot remove it."""

LOCAL_MARK = "made-here"
"""A file beside the workspace: the first text in `TOOL_OUTPUT` was not from outside.

Without it, as in the data of older versions, that folder itself marks a workspace with text from outside.
"""

_LINK = (ToolDenied, "{} is a link, or lies behind one: links are not followed.")
_NO_FILE = (ToolDenied, "{} is not a regular file.")
_NO_FOLDER = (ToolInvalidInput, "{} is a file, or leads through one, where a folder is needed.")
_NO_PERMISSION = (ToolError, "The permissions of {} do not allow it.")
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
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: (ToolError, "The disk cannot be written to, so nothing was changed."),
    errno.EFBIG: (ToolError, "The file would be larger than this system allows; nothing was changed."),
}


def path_parts(path: str) -> tuple[str, ...]:
    """Return the parts of *path*, none for the workspace itself.

    Raises `ToolDenied` for a path that leads out. ".." removes the name before it: links are never followed.
    """
    if path == MOUNT_POINT or path.startswith(f"{MOUNT_POINT}/"):
        path = path.removeprefix(MOUNT_POINT).lstrip("/")
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part == ".." or path.startswith("/") or "\0" in part:
            raise ToolDenied("The path leads out of the workspace.", suggestion="Use a path relative to it.")
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


@contextmanager
def open_path(workspace: Path, path: str, flags: int) -> Iterator[int]:
    """Open *path* in *workspace*; raises `ToolError`s, which name no other path.

    A file that a person sent is found by its own name too.
    """
    parts = path_parts(path)
    with ExitStack() as stack:
        with tool_errors(path):
            root = stack.enter_context(open_workspace(workspace))
            try:
                fd = open_at(root, parts, flags)
            except FileNotFoundError:
                if flags != FILE or not (sent := _sent_as(root, parts)):
                    raise
                fd = open_at(root, sent, flags)
            stack.enter_context(closing(fd))
        yield fd


def _sent_as(root: int, parts: Sequence[str]) -> tuple[str, str] | None:
    """Return where the last file is that a person sent under this name. Raises OSError."""
    *folder, name = parts or ("",)
    if folder not in ([], [ATTACHMENTS]):
        return None
    with closing(open_at(root, (ATTACHMENTS,), FOLDER)) as fd, os.scandir(fd) as entries:
        found = [one for one in entries if one.name.partition("-")[2] == safe_name(name)]
        newest = max(found, key=lambda one: one.stat(follow_symlinks=False).st_mtime_ns, default=None)
    return (ATTACHMENTS, newest.name) if newest else None


def open_workspace(workspace: Path) -> AbstractContextManager[int]:
    return closing(os.open(workspace, FOLDER | NO_LINK))


@contextmanager
def tool_errors(path: str) -> Iterator[None]:
    """Raise errors of the system as `ToolError`s, which name *path* and no other path."""
    try:
        yield
    except FileNotFoundError:
        raise ToolNotFound(f"There is no {path[:200]!r} here.", suggestion="List the folder first.") from None
    except (OSError, ValueError) as error:
        code = error.errno if isinstance(error, OSError) else errno.EINVAL
        kind, text = _REFUSALS.get(code or 0, (ToolError, "The disk reported an error with {}."))
        raise kind(text.format(repr(path[:200]))) from error


def require_regular(fd: int, action: str) -> os.stat_result:
    """Return the state of an open file. Raises `ToolDenied` unless it is a regular file.

    A second hard link could be anywhere, so such a file is refused too.
    """
    return check_regular(os.fstat(fd), action)


def check_regular(state: os.stat_result, action: str) -> os.stat_result:
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
        raise ToolDenied(f"Only regular files of this workspace can be {action}.")
    return state


def holds_outside_text(workspace: Path) -> bool:
    """Return whether text from outside was ever put into the workspace. Blocking."""
    mark = workspace.with_name(OUTSIDE_MARK)
    if os.path.lexists(mark):
        return True
    local = os.path.lexists(workspace.with_name(LOCAL_MARK))
    folders = (ATTACHMENTS,) if local else (ATTACHMENTS, TOOL_OUTPUT)
    if not any(os.path.lexists(workspace / folder) for folder in folders):
        return False
    with suppress(OSError):  # without the mark, the folders still say it
        mark.touch(mode=0o600)
    return True


def mark_output(workspace: Path, *, outside: bool) -> None:
    """Record where a text comes from, before it is written to `TOOL_OUTPUT`. Blocking; raises OSError."""
    if outside or not holds_outside_text(workspace):
        workspace.with_name(OUTSIDE_MARK if outside else LOCAL_MARK).touch(mode=0o600)
