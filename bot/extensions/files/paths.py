"""The path in a call of these tools, and what is read there."""

from __future__ import annotations

import os
from pathlib import Path

from bot.ports.errors import ToolInvalidInput
from bot.ports.tool import Arguments
from bot.tools.files.workspace import holds_outside_text, open_path, path_parts, require_regular
from threads.store.open_beneath import FILE


def normalize(path: str) -> str:
    """Return *path* in the one form that rules match. Raises `ToolDenied` as `path_parts` does."""
    return "/".join(path_parts(path)) or "."


class PathArguments(Arguments):
    path: str

    def subject(self) -> str:
        """Return the normalized path; raises `ToolDenied` for one that leads out."""
        return normalize(self.path)


class AnyPathArguments(PathArguments):
    def always(self) -> str:
        """Allow every file: a thread's own workspace is all there is."""
        return "*"


def read_whole(workspace: Path, path: str, action: str, max_bytes: int) -> bytes:
    """Return the content of a file. Raises `ToolError`, also for a file of more than *max_bytes*."""
    with open_path(workspace, path, FILE) as fd:
        require_regular(fd, action)
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        limit = max_bytes // 1_000_000
        raise ToolInvalidInput(f"The file is larger than {limit} MB, so it cannot be {action}.")
    return data


def origin(workspace: Path) -> str:
    """Return the `bot.ports.tool.ToolOutput` origin of a text from this workspace. Blocking."""
    return "file" if holds_outside_text(workspace) else ""
