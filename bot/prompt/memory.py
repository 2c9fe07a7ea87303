"""What the bot remembers, in files that a person can read and change: `MEMORY.md` by thread, channel, everywhere.

    <data>/MEMORY.md                                              everywhere; only admins may have something kept here
    <data>/channels/<transport>/<workspace>~<channel>/MEMORY.md   every thread of that channel
    <data>/threads/<transport>/<slug>/MEMORY.md                   that thread alone

A thread reads its own three files and can name no other. What lies there was said by people, and is quoted: it
informs, it does not command. A file that has changed is read again, so that a change by hand counts at once.
"""

from __future__ import annotations

import errno
import logging
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import anyio

from bot.errors import ToolDenied, ToolError, ToolInvalidInput
from bot.prompt.cached_file import CachedFile
from bot.prompt.memory_news import HEADING
from bot.prompt.notes import SCOPES, WHERE, Note, Scope, added, clean, fitting, lines, made, written
from threads.disk import Disk, Offload, read_or_empty, replace_file
from threads.errors import StoreUnavailable
from threads.model import ThreadId
from threads.workspace import plain, thread_folder

log = logging.getLogger(__name__)

MOST_NOTES, MOST_BYTES = 100, 20_000
"""What one file may grow to by `add`."""

LONGEST = 500
"""Characters of one note."""

LARGEST = 64_000
"""Bytes of a file that is read; a larger one was made by hand and is left out, with a word."""

MOST_CACHED = 1_000
"""Files whose text is kept in memory."""

ROOM: Mapping[Scope, int] = {"thread": 3_000, "channel": 3_000, "global": 6_000}
"""Characters that a prompt, or a list for people, gives to each scope: together about 3,000 tokens at most."""

NOTHING = "I was not asked to remember anything here. Ask me to, and I will."

UNREADABLE = Note(f"(MEMORY.md cannot be read: it is damaged, or larger than {LARGEST:,} bytes.)")


def memory_files(data: Path, thread: ThreadId) -> dict[Scope, Path]:
    """Return where a thread's memory lies, narrowest first; whatever its ids hold, it is below *data*."""
    channel = "~".join((plain(thread.workspace), plain(thread.channel)))
    return {
        "thread": thread_folder(data, thread) / "MEMORY.md",
        "channel": data / "channels" / plain(thread.transport) / channel / "MEMORY.md",
        "global": data / "MEMORY.md",
    }


class Memory:
    """The memory of one data folder; one writer. ``is_admin`` judges a user's id."""

    def __init__(
        self,
        disk: Disk,
        data: Path,
        *,
        offload: Offload,
        now: Callable[[], datetime],
        is_admin: Callable[[str], bool],
    ) -> None:
        self._disk, self._data, self._offload, self._now, self._is_admin = disk, data, offload, now, is_admin
        self._writing = anyio.Lock()
        self._files: OrderedDict[Path, CachedFile] = OrderedDict()

    async def read(self, thread: ThreadId) -> str:
        """Return the block for the head of a conversation, each line of it quoted; blank when there is nothing."""
        shown = "\n".join(_quoted(await self.notes(thread)))
        return f"{HEADING}\n{shown}" if shown else ""

    async def describe(self, thread: ThreadId) -> str:
        """Return what is remembered here, for the people of the thread."""
        told = "\n".join(_listed(await self.notes(thread)))
        return f"{told}\n`/memory forget ID` takes one back." if told else NOTHING

    async def notes(self, thread: ThreadId) -> dict[Scope, list[Note]]:
        """Return what a thread may know, by scope; a file that cannot be read has one line that says so."""
        files = {scope: self._file(path) for scope, path in memory_files(self._data, thread).items()}
        return await self._offload(_all, files)

    async def add(self, thread: ThreadId, scope: Scope, text: str, user: str) -> Note:
        """Remember a text and return its note, or the one that already says so.

        Raises `ToolDenied` when the user may not, `ToolInvalidInput` when the text or the file is too long,
        `ToolError` when the disk refuses.
        """
        if scope == "global" and not self._is_admin(user):
            raise ToolDenied(
                "Only an admin may have something remembered everywhere.",
                suggestion="Remember it for this channel or this thread, or say that an admin must ask for it.",
            )
        worded = clean(text)
        if not worded or len(worded) > LONGEST:
            raise ToolInvalidInput(
                f"A note has 1 to {LONGEST} characters; this has {len(worded)}.",
                suggestion="Say it in fewer words, or in several notes.",
            )
        path = memory_files(self._data, thread)[scope]
        day = self._now().date().isoformat()
        async with self._writing:
            try:
                note = await self._offload(self._add, path, scope, worded, day, user)
            except OSError as error:
                log.warning(
                    "memory.not_kept: nothing was remembered: %s", error, extra={"thread_id": str(thread)}
                )
                raise ToolError("Its file cannot be read or written, so nothing was remembered.") from error
        log.info("memory.kept: remembered %s, asked by %s", note.id, user, extra={"thread_id": str(thread)})
        return note

    async def forget(self, thread: ThreadId, note_id: str, user: str) -> str:
        """Take a note of this thread, its channel or everywhere back; return a sentence.

        Raises `StoreUnavailable`, and nothing is forgotten then.
        """
        wanted = note_id.strip().strip("[]`").lower()
        for scope, path in memory_files(self._data, thread).items():
            allowed = scope != "global" or self._is_admin(user)
            async with self._writing:
                try:
                    note = await self._offload(self._take, path, wanted, allowed)
                except OSError as error:
                    raise StoreUnavailable(f"{path.name}: {error}") from error
            if note and allowed:
                log.info(
                    "memory.forgotten: forgot %s, asked by %s",
                    note.id,
                    user,
                    extra={"thread_id": str(thread)},
                )
                return f"Forgotten, {WHERE[scope]}: “{note.text}”"
            if note:
                return f"Only an admin may forget {note.id}: it is remembered everywhere."
        return "There is no such note here. `/memory` lists them; what has no id is changed by hand, in its file."

    def _file(self, path: Path) -> CachedFile:
        file = self._files.setdefault(path, CachedFile(self._disk, path, LARGEST))
        self._files.move_to_end(path)
        if len(self._files) > MOST_CACHED:
            self._files.popitem(last=False)
        return file

    def _lines(self, path: Path) -> list[Note]:
        """Return the lines of a file, none of a missing one; raises OSError."""
        try:
            about = path.stat()
        except FileNotFoundError:
            return []
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise OSError(errno.EFBIG, f"not a file of at most {LARGEST} bytes", str(path))
        return lines(read_or_empty(self._disk, path).decode("utf-8", "surrogateescape"))

    def _add(self, path: Path, scope: Scope, text: str, day: str, user: str) -> Note:
        there = self._lines(path)
        mine = [note for note in there if note.id]
        if known := next((note for note in mine if note.text == text), None):
            return known
        note = made(scope, text, day, user, (note.id for note in mine))
        data = _encoded(added(there, note))
        if len(mine) >= MOST_NOTES or len(data) > MOST_BYTES:
            raise _full(scope, mine)
        replace_file(self._disk, path, data)
        return note

    def _take(self, path: Path, note_id: str, allowed: bool) -> Note | None:
        """Return the note of that id, out of the file if that is allowed."""
        there = self._lines(path)
        note = next((note for note in there if note.id and note.id == note_id), None)
        if note and allowed:
            replace_file(self._disk, path, _encoded([other for other in there if other is not note]))
        return note


def _all(files: Mapping[Scope, CachedFile]) -> dict[Scope, list[Note]]:
    return {
        scope: [UNREADABLE] if (text := file.read()) is None else lines(text) for scope, file in files.items()
    }


def _encoded(notes: Sequence[Note]) -> bytes:
    return written(notes).encode("utf-8", "surrogateescape")


def _full(scope: Scope, notes: Sequence[Note]) -> ToolInvalidInput:
    oldest = ", ".join(f"{note.id} (“{note.text[:60]}”)" for note in notes[:3])
    how = f"`/memory forget ID`; the oldest are {oldest}" if oldest else "a shorter file"
    return ToolInvalidInput(
        f"No more can be remembered {WHERE[scope]}: at most {MOST_NOTES} notes and {MOST_BYTES:,} bytes.",
        suggestion=f"Tell the person that room is made by {how}.",
    )


def _quoted(memory: Mapping[Scope, Sequence[Note]]) -> Iterator[str]:
    for scope in reversed(SCOPES):
        kept, left_out = fitting(memory[scope], ROOM[scope])
        if kept or left_out:
            yield f"Remembered {WHERE[scope]}:"
        yield from (f"> {note.shown}" for note in kept)
        if left_out:
            yield f"({left_out} more are left out)"


def _listed(memory: Mapping[Scope, Sequence[Note]]) -> Iterator[str]:
    for scope in SCOPES:
        kept, left_out = fitting(memory[scope], ROOM[scope])
        if kept or left_out:
            yield f"Remembered {WHERE[scope]}:"
        yield from (
            f"- `{note.id}` {note.text} ({note.by}, {note.day})" if note.id else note.text for note in kept
        )
        if left_out:
            yield f"({left_out} more are not shown)"
