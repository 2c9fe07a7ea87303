"""context.jsonl: a thread's conversation as the model sees it. Each checkpoint replaces the whole file.

A message is encoded once, so a checkpoint costs a write. The same conversation always gives the same
bytes. Damaged lines are set aside and the rest is used. The agent's `repair` turns it into a valid request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from threads.errors import StoreUnavailable
from threads.model import Message

from .checksummed_lines import SCHEMA_VERSION, Lines, encode, read_records
from .data_folder import conversation_was_archived
from .disk import Bytes, Disk, Offload, read_or_empty, replace_file, set_aside

T = TypeVar("T")

Replace = Callable[[Path, Bytes, bool], Awaitable[None]]
"""As `replace_file`, but off the event loop. `Checkpoints` provides it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file."""

    message: Message
    v: int = SCHEMA_VERSION


@cache
def line_adapter() -> TypeAdapter[Line]:
    """Return the validator of context lines, built on first use."""
    return TypeAdapter(Line)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A conversation from disk. ``damaged`` counts the lines that were set aside.

    ``anew``: it is empty, and people archived an earlier one.
    """

    messages: list[Message]
    damaged: int = 0
    anew: bool = False


class ContextFile:
    """The file of one thread's conversation: ``<folder>/context.jsonl``."""

    def __init__(self, disk: Disk, folder: Path, offload: Offload, replace: Replace) -> None:
        self._disk, self._path, self._offload = disk, folder / "context.jsonl", offload
        self._replace, self._new = replace, True
        self._lines = Lines(_encode)

    async def load(self) -> Loaded:
        """Read it. Raises `NewerSchema` if a newer version wrote it, and `StoreUnavailable` if the disk fails."""
        found = await self._stored(self._offload(self._read))
        self._lines.update(found.messages)
        return found

    async def save(self, messages: list[Message]) -> None:
        """Make the conversation durable. Raises `StoreUnavailable`, and leaves the old one in place."""
        self._lines.update(messages)
        await self._stored(self._replace(self._path, self._lines.data, self._new))
        self._new = False

    async def copy_to_archive(self, first: int = 0) -> None:
        """Copy the conversation on disk, from the line at *first* on, to the archive. Raises `StoreUnavailable`."""
        await self._stored(self._offload(self._copy_to_archive, first))

    async def archive(self) -> None:
        """Move the conversation to the archive and start an empty one. Raises `StoreUnavailable`."""
        await self._stored(self._offload(self._archive))

    async def _stored(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except OSError as error:
            raise StoreUnavailable(f"context: {error}") from error

    def _read(self) -> Loaded:
        data = read_or_empty(self._disk, self._path)
        self._new = not data
        lines, broken = read_records(line_adapter(), data)
        for part in broken:
            set_aside(self._disk, self._path, part)
        anew = not lines and conversation_was_archived(self._disk, self._path.parent)
        return Loaded([line.message for line, _ in lines], len(broken), anew)

    def _copy_to_archive(self, first: int = 0) -> None:
        data = b"\n".join(read_or_empty(self._disk, self._path).split(b"\n")[first:])
        old = self._path.with_name("context.old.jsonl")
        replace_file(self._disk, old, read_or_empty(self._disk, old) + data, self._new)

    def _archive(self) -> None:
        self._copy_to_archive()
        replace_file(self._disk, self._path, b"")


def _encode(message: Message) -> bytes:
    return encode(line_adapter(), Line(message))
