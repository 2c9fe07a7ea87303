"""The lines of a MEMORY.md. Values only, no I/O.

A note is a list entry. A comment at its end, which Markdown does not show, has its id, its day and who asked for it:

    - The staging server is called fern.  <!-- c3f2a 2026-11-22 U123 -->

People wrote all other lines by hand. They stay byte for byte, and the model reads them like notes.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, get_args

from threads.invisible_text import prose
from threads.store.data_folder import plain

Scope = Literal["thread", "channel", "global"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

WHERE: dict[Scope, str] = {"thread": "for this thread", "channel": "for this channel", "global": "everywhere"}

_ID = re.compile(r"[tcg][0-9a-f]{4}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_BY = re.compile(r"[A-Za-z0-9._%-]+")


@dataclass(frozen=True, slots=True)
class Note:
    """One line. ``id`` starts with the first letter of its scope; it is blank in a line written by hand.

    ``by`` is the id of the person who asked for it, in the form of `plain`. ``day`` is UTC, ISO 8601. ``raw`` is the
    whole line.
    """

    text: str
    id: str = ""
    day: str = ""
    by: str = ""
    raw: str = ""

    @property
    def line(self) -> str:
        """The note as one line that is safe to quote."""
        return f"[{self.id}] {self.text} ({self.by}, {self.day})" if self.id else self.text


def new_note(scope: Scope, text: str, day: str, user: str, taken: Iterable[str]) -> Note:
    """Return a note with a `clean` text and a free id. It is the same for the same values."""
    others = set(taken)
    digests = (hashlib.sha256(f"{n}\0{day}\0{user}\0{text}".encode()).hexdigest() for n in count())
    name = next(name for digest in digests if (name := scope[0] + digest[:4]) not in others)
    return parse_note(f"- {text}  <!-- {name} {day} {plain(user) or '-'} -->")


def parse_note(line: str) -> Note:
    """Return the note in a line of the file."""
    body, opened, comment = line.rstrip().removesuffix("-->").rpartition("<!--")
    words = comment.split()
    entry = body.strip()
    if (
        opened
        and line.rstrip().endswith("-->")
        and entry.startswith(("- ", "* "))
        and len(words) == 3
        and _ID.fullmatch(words[0])
        and _DAY.fullmatch(words[1])
        and _BY.fullmatch(words[2])
    ):
        name, day, user = words
        return Note(visible_text(entry[2:]).strip(), name, day, user, line)
    return Note(visible_text(line).rstrip(), raw=line)


def parse_notes(text: str) -> list[Note]:
    """Return the lines of a file. Their ``raw``, joined with newlines, is the file again."""
    return [parse_note(line) for line in text.split("\n")] if text else []


def to_text(notes: Sequence[Note]) -> str:
    """Return the text of a file with these lines."""
    return "\n".join(note.raw for note in notes)


def append_note(notes: Sequence[Note], note: Note) -> list[Note]:
    """Return the lines with one more. The file then ends with a newline."""
    last = 1 if notes and not notes[-1].raw else 0
    return [*notes[: len(notes) - last], note, Note("")]


def clean(text: str) -> str:
    """Return a text in the form of a note: one line, with nothing invisible, no comment and no fence."""
    line = " ".join(visible_text(text).split())
    return line.replace("<!--", "<! --").replace("-->", "-- >").replace("```", "'''")


def visible_text(text: str) -> str:
    """Return the text without invisible characters; line breaks and the like become blanks."""
    return prose(text, _seen, kept="")


def _seen(character: str) -> str:
    match unicodedata.category(character):
        case "Cc" | "Zl" | "Zp":
            return " "
        case "Cs":
            return "\ufffd"
        case _:
            return ""


def matches(note: Note, query: str) -> bool:
    """Return whether the note has all words of the query, in upper or lower case."""
    text = note.text.casefold()
    return all(word in text for word in query.casefold().split())


def select_notes(notes: Sequence[Note], room: int) -> tuple[list[Note], int]:
    """Return the notes that fit into *room* characters, in their order, and how many are left out.

    Lines written by hand count from the top, notes from the newest. Each kind has half of the room, and what the
    other does not need.
    """
    filled = [note for note in notes if note.text.strip()]
    by_hand = [place for place, note in enumerate(filled) if not note.id]
    newest = [place for place in reversed(range(len(filled))) if filled[place].id]
    needed = sum(_size(filled[place]) for place in newest)
    notes_room = min(needed, room - room // 2)
    first, left = _first(filled, by_hand, room - notes_room)
    rest, _ = _first(filled, newest, notes_room + left)
    places = sorted([*first, *rest])
    return [filled[place] for place in places], len(filled) - len(places)


def _first(notes: Sequence[Note], places: Iterable[int], room: int) -> tuple[list[int], int]:
    """Return the first places whose notes fit, and the room that is left."""
    selected = list[int]()
    for place in places:
        if room < _size(notes[place]):
            break
        room -= _size(notes[place])
        selected.append(place)
    return selected, room


def _size(note: Note) -> int:
    return len(note.line) + 1
