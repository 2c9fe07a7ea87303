"""Writes files in the thread's own workspace: whole or not at all, one at a time, within the workspace's quota.

The bytes go to a temporary file beside the workspace, where no command sees them. Once they are on disk, the file
takes its name: every reader, also after a crash, finds the old file or the new one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from weakref import WeakValueDictionary

import anyio

from bot.ports.errors import ToolInvalidInput
from threads.invisible_text import prose
from threads.store.disk import Disk, Offload, write_new
from threads.store.open_beneath import FOLDER, closing, open_at

from .quota import Quota
from .workspace import TOOL_OUTPUT, check_regular, mark_output, open_workspace, path_parts, tool_errors

MAX_WRITTEN = 10_000_000
"""Bytes of a file that is written or edited."""

TEMPORARY = "write.tmp"
"""A file beside the workspace; the next write replaces what a crash left there."""

PRIVATE = 0o600


class Writer:
    """Writes the files of all workspaces."""

    def __init__(self, disk: Disk, offload: Offload, quota: Quota) -> None:
        self.offload, self.quota = offload, quota
        self._disk = disk
        self._locks: WeakValueDictionary[Path, anyio.Lock] = WeakValueDictionary()

    def lock(self, workspace: Path) -> anyio.Lock:
        """Return the lock to hold while a file is written, or read to be changed."""
        return self._locks.setdefault(workspace, anyio.Lock())

    def write(self, workspace: Path, path: str, data: bytes) -> bool:
        """Replace the file's content and return whether the file is new. On a `ToolError` nothing changed."""
        if not (parts := path_parts(path)):
            raise ToolInvalidInput("The workspace itself is not a file.")
        if len(data) > MAX_WRITTEN:
            limit = MAX_WRITTEN // 1_000_000
            raise ToolInvalidInput(f"The file would be larger than {limit} MB.", suggestion="Split it.")
        with tool_errors(path), ExitStack() as stack:
            self._disk.mkdir(workspace)
            root = stack.enter_context(open_workspace(workspace))
            before = _state(root, parts)
            growth = (len(data) - before.st_size, 0) if before else (len(data), len(parts))
            self.quota.check(workspace, *growth)
            folder = stack.enter_context(closing(_make_folders(root, parts[:-1])))
            mode = stat.S_IMODE(before.st_mode) & 0o777 if before else PRIVATE
            self._replace(workspace.with_name(TEMPORARY), folder, parts[-1], data, mode)
        return before is None

    async def save_output(self, workspace: Path, name: str, data: bytes, *, outside: bool) -> str:
        """Write the output of a tool to `TOOL_OUTPUT` and return its path there. Raises `ToolError`s.

        With ``outside``, whatever is read in this workspace counts as text from outside from then on.
        """
        path = f"{TOOL_OUTPUT}/{name}"
        async with self.lock(workspace):
            await self.offload(self._save_output, workspace, path, data, outside)
        return path

    def _save_output(self, workspace: Path, path: str, data: bytes, outside: bool) -> None:
        with tool_errors(path):
            self._disk.mkdir(workspace)
            mark_output(workspace, outside=outside)
        self.write(workspace, path, data)

    def _replace(self, temporary: Path, folder: int, name: str, data: bytes, mode: int) -> None:
        try:
            write_new(self._disk, temporary, data)
            if mode != PRIVATE:
                temporary.chmod(mode)
            os.rename(temporary, name, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):  # the next write replaces what is left
                self._disk.unlink(temporary)
            raise
        os.fsync(folder)


def _state(root: int, parts: Sequence[str]) -> os.stat_result | None:
    """Return the state of the file to replace, or None if it does not exist."""
    try:
        with closing(open_at(root, parts[:-1], FOLDER)) as folder:
            state = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        if any(prose(part, lambda _: "", kept="") != part for part in parts):
            raise ToolInvalidInput(
                "A name must be of plain characters.", suggestion="Choose another name."
            ) from None
        return None
    if stat.S_ISDIR(state.st_mode):
        raise ToolInvalidInput(f"{'/'.join(parts)[:200]!r} is a folder.")
    return check_regular(state, "written")


def _make_folders(root: int, folders: Sequence[str]) -> int:
    """Open the last of *folders*; create those that are missing."""
    try:
        return open_at(root, folders, FOLDER)
    except FileNotFoundError:
        pass
    for depth, name in enumerate(folders):
        with closing(open_at(root, folders[:depth], FOLDER)) as parent, suppress(FileExistsError):
            os.mkdir(name, mode=0o700, dir_fd=parent)
            os.fsync(parent)
    return open_at(root, folders, FOLDER)
