"""Files out: a file of the workspace is posted to its own thread, and to no other place."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.errors import ToolDenied, ToolError, ToolInvalidInput
from threads.attachments import safe_name
from threads.disk import Offload
from threads.errors import PostFailed, TransportRejected

from .base import Arguments, Place
from .beneath import FILE, beneath, regular
from .files import PathArguments

MAX_ATTACHED = 50_000_000
"""Bytes of a file that is posted."""


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
    offload: Offload
    name: ClassVar[str] = "attach"
    description: ClassVar[str] = (
        "Post a file of this thread's workspace to this thread, for people to download."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = AttachArguments

    async def __call__(self, arguments: Arguments, place: Place) -> JsonValue:
        assert isinstance(arguments, AttachArguments)
        name = safe_name(arguments.name or arguments.path)
        with ExitStack() as opened:
            fd, size = await self.offload(_open, opened, place.workspace, arguments.path)
            # By its descriptor: what the path names may change before the transport has read it.
            file = Path(f"/dev/fd/{fd}")
            try:
                await place.attach(place.call_id, file, name)
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
