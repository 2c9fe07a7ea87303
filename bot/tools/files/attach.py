"""Files out: a file of the workspace is posted to its own thread, and to no other context."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.guards.redaction import Masker
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput
from bot.ports.tool import Arguments, ToolContext
from threads.errors import PostFailed, TransportRejected
from threads.store.attachments import safe_name
from threads.store.disk import Offload

from .read import PathArguments
from .resolve_beneath import FILE, beneath, regular

MAX_ATTACHED = 50_000_000
"""Bytes of a file that is posted."""

CHUNK = 1_000_000
"""Bytes that are searched for a secret at once."""


class AttachArguments(PathArguments):
    path: str = Field(max_length=4096, description="File to post, relative to the workspace")
    name: str = Field(
        default="", max_length=1_000, description="What people see it called; its own name if left out"
    )

    def always(self) -> str:
        """Return that every file is meant: whoever is here may see what lies in this thread's workspace."""
        return "*"


@dataclass(frozen=True)
class Attach:
    """A file that holds one of the bot's own secrets as it is, which ``secrets`` knows, is not posted."""

    offload: Offload
    secrets: Masker = field(default_factory=Masker)
    name: ClassVar[str] = "attach"
    description: ClassVar[str] = (
        "Post a file of this thread's workspace to this thread, for people to download."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = AttachArguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> JsonValue:
        assert isinstance(arguments, AttachArguments)
        name = safe_name(self.secrets(arguments.name or arguments.path))
        with ExitStack() as opened:
            fd, size = await self.offload(_open, opened, context.workspace, arguments.path)
            if await self.offload(_gives_away, self.secrets, fd):
                raise ToolDenied(
                    "The file holds a secret of the bot's own.", suggestion="Take it out; do not show it."
                )
            # By its descriptor: what the path names may change before the transport has read it.
            file = Path(f"/dev/fd/{fd}")
            try:
                await context.attach(context.call_id, file, name)
            except TransportRejected as error:
                raise ToolDenied(
                    "Files cannot be posted here.", suggestion="Put what matters into your answer."
                ) from error
            except PostFailed as error:
                word = "It may or may not have been posted." if error.maybe_posted else "It was not posted."
                raise ToolError(f"The file did not get through. {word}") from error
        return {"posted": name, "size": size}


def _open(opened: ExitStack, workspace: Path, path: str) -> tuple[int, int]:
    """Open the file until *opened* is closed; return its descriptor and its size."""
    fd = opened.enter_context(beneath(workspace, path, FILE))
    size = regular(fd, "posted").st_size
    if size > MAX_ATTACHED:
        limit = MAX_ATTACHED // 1_000_000
        raise ToolInvalidInput(f"The file is larger than {limit} MB.", suggestion="Make a smaller one.")
    return fd, size


def _gives_away(secrets: Masker, fd: int) -> bool:
    """Return whether a secret is in the file, wherever the chunks are cut."""
    at, before = 0, b""
    while secrets.longest and (chunk := os.pread(fd, CHUNK, at)):
        if secrets.contains_secret(before + chunk):
            return True
        at, before = at + len(chunk), (before + chunk)[-secrets.longest :]
    return False
