"""The bot's memory, in files that a person can read and edit: `MEMORY.md` by thread, by channel, and everywhere.

    <data>/MEMORY.md                                              everywhere; only admins may add to it
    <data>/channels/<transport>/<workspace>~<channel>/MEMORY.md   every thread of that channel
    <data>/threads/<transport>/<slug>/MEMORY.md                   that thread alone

A thread reads its own three files and no others. People wrote them, so they are quoted: they inform and do not
command. A changed file is read again, so an edit counts at once.
"""

from __future__ import annotations

import errno
import logging
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import anyio
from cachetools import LRUCache

from bot.agent.prompt.cached_file import CachedFile
from bot.agent.prompt.memory_changes import HEADING
from bot.agent.prompt.memory_lines import (
    SCOPES,
    WHERE,
    Note,
    Scope,
    append_note,
    clean,
    new_note,
    parse_notes,
    select_notes,
    to_text,
)
from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput
from threads.errors import StoreUnavailable
from threads.model import ThreadId
from threads.store.data_folder import plain, thread_folder
from threads.store.disk import Disk, Offload, read_or_empty, replace_file

log = logging.getLogger(__name__)

MOST_NOTES, MOST_BYTES = 100, 20_000
"""What one file may grow to by `add`."""

LONGEST = 500
"""Characters of one note."""

LARGEST = 64_000
"""Bytes of a file that is read; `UNREADABLE` stands in place of a larger one, which was made by hand."""

MOST_CACHED = 1_000
"""Files whose text is kept in memory."""

ROOM: Mapping[Scope, int] = {"thread": 3_000, "channel": 3_000, "global": 6_000}
"""Characters of each scope in a prompt, or in a list for people: about 3,000 tokens in all."""

NOTHING = "I was not asked to remember anything here. Ask me to, and I will."

UNREADABLE = Note(f"(MEMORY.md cannot be read: it is damaged, or larger than {LARGEST:,} bytes.)")


def memory_files(data: Path, thread: ThreadId) -> dict[Scope, Path]:
    """Return the files of a thread's memory, narrowest scope first; all are below *data*, whatever the ids are."""
    channel = "~".join((plain(thread.workspace), plain(thread.channel)))
    return {
        "thread": thread_folder(data, thread) / "MEMORY.md",
        "channel": data / "channels" / plain(thread.transport) / channel / "MEMORY.md",
        "global": data / "MEMORY.md",
    }


class Memory:
    """The memory of one data folder, with one writer at a time. ``is_admin`` takes a user's id."""

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
        self._files = LRUCache[Path, CachedFile](MOST_CACHED)

    async def read(self, thread: ThreadId) -> str:
        """Return the block for the head of a conversation, each line quoted; blank if nothing is remembered."""
        sections = _sections(
            await self.notes(thread), reversed(SCOPES), lambda note: f"> {note.line}", "left out"
        )
        return "\n".join([HEADING, *sections]) if sections else ""

    async def describe(self, thread: ThreadId) -> str:
        """Return what is remembered here, for the people of the thread."""
        sections = _sections(await self.notes(thread), SCOPES, _describe_note, "not shown")
        return "\n".join([*sections, "`/memory forget ID` takes one back."]) if sections else NOTHING

    async def notes(self, thread: ThreadId) -> dict[Scope, list[Note]]:
        """Return a thread's notes by scope; a file that cannot be read is one line that says so."""
        files = {scope: self._file(path) for scope, path in memory_files(self._data, thread).items()}
        return await self._offload(_all, files)

    async def add(self, thread: ThreadId, scope: Scope, text: str, user: str) -> Note:
        """Remember a text and return its note, or the note that has the same text already.

        Raises `ToolDenied` if the user may not, `ToolInvalidInput` if the text or the file would be too long, and
        `ToolError` if the disk fails.
        """
        if scope == "global" and not self._is_admin(user):
            raise ToolDenied(
                "Only an admin may have something remembered everywhere.",
                suggestion="Remember it for this channel or this thread, or say that an admin must ask for it.",
            )
        cleaned = clean(text)
        if not cleaned or len(cleaned) > LONGEST:
            raise ToolInvalidInput(
                f"A note has 1 to {LONGEST} characters; this has {len(cleaned)}.",
                suggestion="Say it in fewer words, or in several notes.",
            )
        path = memory_files(self._data, thread)[scope]
        day = self._now().date().isoformat()
        async with self._writing:
            try:
                note = await self._offload(self._add, path, scope, cleaned, day, user)
            except OSError as error:
                log.warning(
                    "memory.not_kept: nothing was remembered: %s", error, extra={"thread_id": str(thread)}
                )
                raise ToolError("Its file cannot be read or written, so nothing was remembered.") from error
        log.info("memory.kept: remembered %s, asked by %s", note.id, user, extra={"thread_id": str(thread)})
        return note

    async def forget(self, thread: ThreadId, note_id: str, user: str) -> str:
        """Delete a note of any scope that the thread reads, and return a sentence for people.

        Raises `StoreUnavailable`; nothing is deleted then.
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
        return "There is no such note here. `/memory` lists them. Lines without an id are edited in the file."

    def _file(self, path: Path) -> CachedFile:
        return self._files.setdefault(path, CachedFile(self._disk, path, LARGEST))

    def _lines(self, path: Path) -> list[Note]:
        """Return the lines of a file, or none if it is missing; raises OSError."""
        try:
            about = path.stat()
        except FileNotFoundError:
            return []
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            raise OSError(errno.EFBIG, f"not a file of at most {LARGEST} bytes", str(path))
        return parse_notes(read_or_empty(self._disk, path).decode("utf-8", "surrogateescape"))

    def _add(self, path: Path, scope: Scope, text: str, day: str, user: str) -> Note:
        notes = self._lines(path)
        mine = [note for note in notes if note.id]
        if known := next((note for note in mine if note.text == text), None):
            return known
        note = new_note(scope, text, day, user, (note.id for note in mine))
        data = _encoded(append_note(notes, note))
        if len(mine) >= MOST_NOTES or len(data) > MOST_BYTES:
            raise _full(scope, mine)
        replace_file(self._disk, path, data)
        return note

    def _take(self, path: Path, note_id: str, allowed: bool) -> Note | None:
        """Return the note with this id, and delete it from the file if that is *allowed*."""
        notes = self._lines(path)
        note = next((note for note in notes if note.id and note.id == note_id), None)
        if note and allowed:
            replace_file(self._disk, path, _encoded([other for other in notes if other is not note]))
        return note


def _all(files: Mapping[Scope, CachedFile]) -> dict[Scope, list[Note]]:
    return {
        scope: [UNREADABLE] if (text := file.read()) is None else parse_notes(text)
        for scope, file in files.items()
    }


def _encoded(notes: Sequence[Note]) -> bytes:
    return to_text(notes).encode("utf-8", "surrogateescape")


def _full(scope: Scope, notes: Sequence[Note]) -> ToolInvalidInput:
    oldest = ", ".join(f"{note.id} (“{note.text[:60]}”)" for note in notes[:3])
    how = f"`/memory forget ID`; the oldest are {oldest}" if oldest else "a shorter file"
    return ToolInvalidInput(
        f"No more can be remembered {WHERE[scope]}: at most {MOST_NOTES} notes and {MOST_BYTES:,} bytes.",
        suggestion=f"Tell the person how to make room: {how}.",
    )


def _sections(
    memory: Mapping[Scope, Sequence[Note]],
    scopes: Iterable[Scope],
    line: Callable[[Note], str],
    left_out: str,
) -> list[str]:
    """Return the lines of each scope's section; *line* words one note."""
    lines: list[str] = []
    for scope in scopes:
        notes, more = select_notes(memory[scope], ROOM[scope])
        if notes or more:
            lines.append(f"Remembered {WHERE[scope]}:")
        lines += map(line, notes)
        if more:
            lines.append(f"({more} more are {left_out})")
    return lines


def _describe_note(note: Note) -> str:
    return f"- `{note.id}` {note.text} ({note.by}, {note.day})" if note.id else note.text
