"""Posts a file of the workspace to its own thread, and nowhere else."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.guards.redaction import Masker
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput
from bot.ports.tool import Arguments, ToolContext
from bot.tools.files.workspace import open_path, require_regular
from threads.errors import PostFailed, TransportRejected
from threads.store.attachments import safe_name
from threads.store.disk import Offload
from threads.store.open_beneath import FILE

from .paths import AnyPathArguments

MAX_ATTACHED = 50_000_000
"""Bytes of a file that is posted."""

CHUNK = 1_000_000
"""Bytes that are searched for a secret at once."""


class AttachArguments(AnyPathArguments):
    path: str = Field(max_length=4096, description="File to post, relative to the workspace")
    name: str = Field(
        default="", max_length=1_000, description="File name that people see; its own name if left out"
    )


@dataclass(frozen=True)
class Attach:
    """Refuses a file that contains one of the bot's own ``secrets``."""

    offload: Offload
    secrets: Masker
    name: ClassVar[str] = "attach"
    description: ClassVar[str] = (
        "Post a file of this thread's workspace to this thread, for people to download."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = AttachArguments

    async def check(self, arguments: AttachArguments, context: ToolContext) -> None:
        with ExitStack() as stack:
            await self.offload(_open, stack, context.workspace, arguments.path)

    async def __call__(self, arguments: AttachArguments, context: ToolContext) -> JsonValue:
        name = safe_name(self.secrets(arguments.name or arguments.path))
        with ExitStack() as stack:
            fd, size = await self.offload(_open, stack, context.workspace, arguments.path)
            if await self.offload(_has_secret, self.secrets, fd):
                raise ToolDenied(
                    "The file contains a secret of the bot.", suggestion="Remove it; do not show it."
                )
            # The path could name another file before the transport has read it; the descriptor cannot.
            file = Path(f"/dev/fd/{fd}")
            try:
                await context.attach(context.call_id, file, name)
            except TransportRejected as error:
                raise ToolDenied(
                    "Files cannot be posted here.", suggestion="Put what matters into your answer."
                ) from error
            except PostFailed as error:
                posted = "It may or may not have been posted." if error.maybe_posted else "It was not posted."
                raise ToolError(f"The file did not get through. {posted}") from error
        return {"posted": name, "size": size}


def _open(stack: ExitStack, workspace: Path, path: str) -> tuple[int, int]:
    """Open the file until *stack* is closed; return its descriptor and its size."""
    fd = stack.enter_context(open_path(workspace, path, FILE))
    if (size := require_regular(fd, "posted").st_size) > MAX_ATTACHED:
        limit = MAX_ATTACHED // 1_000_000
        raise ToolInvalidInput(f"The file is larger than {limit} MB.", suggestion="Make a smaller one.")
    return fd, size


def _has_secret(secrets: Masker, fd: int) -> bool:
    """Return whether the file contains a secret, also across the end of a chunk."""
    offset, previous = 0, b""
    while secrets.longest and (chunk := os.pread(fd, CHUNK, offset)):
        if secrets.contains_secret(previous + chunk):
            return True
        offset, previous = offset + len(chunk), (previous + chunk)[-secrets.longest :]
    return False
