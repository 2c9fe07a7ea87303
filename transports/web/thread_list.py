"""The list of a person's threads: what they say of each, and which of them a page shows.

A person names, pins, archives and deletes their threads; a model gives one a title. What is said of all of them is
one small durable value per person, the same for all workers. The pages of every worker are told of a change.

A deleted thread is hidden, and not opened any more. Nothing of it is taken from the disk: the change can be undone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
from pydantic import BaseModel, ConfigDict, Field

from threads.store.json_file import JsonState, State
from transports.base.text import clean
from transports.web.feed import TITLE, Event

MOST_NOTES = 2_000
"""Threads of one person that something is said of. Beyond, the oldest titles that a model made are forgotten."""

MOST_LISTED = 100
"""Threads that a list is told at once, beside those that are pinned."""


class TooManyNotes(Exception):
    """A person named, pinned, archived or deleted more threads than can be remembered."""


class ThreadDeleted(Exception):
    """A thread was deleted by its person."""


class ThreadNote(BaseModel):
    """What is said of a thread. A person ``named`` it, or a model was ``asked`` for its title, which is done once."""

    model_config = ConfigDict(frozen=True)

    title: str = ""
    named: bool = False
    asked: bool = False
    pinned: bool = False
    archived: bool = False
    deleted_at: str = ""

    @property
    def is_said(self) -> bool:
        """Whether its person said something of it."""
        return self.named or self.pinned or self.archived or bool(self.deleted_at)


class NotesState(JsonState):
    """What is said of a person's threads, by their roots; what was said last is at the end."""

    threads: dict[str, ThreadNote] = Field(default_factory=dict)


NOTHING = ThreadNote()
OpenNotes = Callable[[str], Awaitable[State[NotesState]]]
"""Opens what is said of the threads of a person."""


class ThreadNotes:
    """What people say of their threads. ``tell`` is called with a person and what their pages are told."""

    def __init__(self, open_notes: OpenNotes, tell: Callable[[str, Event], None]) -> None:
        self._open_notes, self._tell = open_notes, tell
        self._states = dict[str, State[NotesState]]()
        self._told = dict[str, Mapping[str, ThreadNote]]()
        self._opening = anyio.Lock()

    async def of(self, person: str) -> Mapping[str, ThreadNote]:
        """Return what is said of a person's threads, by their roots. Raises OSError."""
        async with self._opening:
            if person not in self._states:
                state = await self._open_notes(person)
                self._states[person], self._told[person] = state, state.value.threads
                state.on_change = partial(self._changed, person)
        return self._states[person].value.threads

    def known(self, person: str, root: str) -> ThreadNote:
        """Return what is said of a thread, as far as it was read."""
        return self._told.get(person, {}).get(root, NOTHING)

    async def check(self, person: str, root: str) -> None:
        """Raise `ThreadDeleted` if a thread was deleted."""
        if (await self.of(person)).get(root, NOTHING).deleted_at:
            raise ThreadDeleted

    async def change(self, person: str, root: str, change: Callable[[ThreadNote], ThreadNote]) -> None:
        """Change what is said of a thread. Raises `TooManyNotes` and `StoreUnavailable`."""
        await self.of(person)
        await self._states[person].change(partial(_changed, root, change))

    def _changed(self, person: str) -> None:
        before, now = self._told[person], self._states[person].value.threads
        self._told[person] = now
        for root in {*before, *now}:
            note, old = now.get(root, NOTHING), before.get(root, NOTHING)
            if note != old:
                named: Event = {} if note.title == old.title else {"title": note.title}
                self._tell(person, {"op": "list", "thread": root, **shown(note), **named})


def _changed(root: str, change: Callable[[ThreadNote], ThreadNote], state: NotesState) -> NotesState:
    before = state.threads.get(root, NOTHING)
    if (note := change(before)) == before:
        return state
    notes = {**{one: said for one, said in state.threads.items() if one != root}, root: note}
    if len(notes) > MOST_NOTES:
        oldest = next((one for one, said in notes.items() if not said.is_said), None)
        if oldest is None:
            raise TooManyNotes
        del notes[oldest]
    return state.model_copy(update={"threads": notes})


def shown(note: ThreadNote) -> Event:
    """Return what a page is told of a thread, beside its title."""
    return {"pinned": note.pinned, "archived": note.archived, "deleted": bool(note.deleted_at)}


def one_line(text: str) -> str:
    """Return a text as a title: one line, not too long, without what cannot be seen."""
    return " ".join(clean(text).split())[:TITLE].strip()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which threads a page asks for: those in the archive or all others, from a place in the list on.

    The place is the ``cursor`` of the thread before.
    """

    archived: bool = False
    before: str = ""

    def of(
        self, found: Sequence[tuple[str, float]], notes: Mapping[str, ThreadNote]
    ) -> tuple[list[tuple[str, float]], str]:
        """Return of the threads that are *found*, with when each changed, those wanted, newest first.

        The pinned ones come first. With them comes the cursor for more; blank if these are all.
        """
        here = [one for one in found if self.takes(notes.get(one[0], NOTHING))]
        pinned = [] if self.archived else [one for one in here if notes.get(one[0], NOTHING).pinned]
        others = sorted({*here}.difference(pinned), key=_place)
        if self.before:
            at, _, root = self.before.partition(":")
            pinned, others = [], [one for one in others if _place(one) > (-float(at), root)]
        more = others[MOST_LISTED - 1 : MOST_LISTED] if len(others) > MOST_LISTED else []
        return [*pinned, *others[:MOST_LISTED]], "".join(f"{at!r}:{root}" for root, at in more)

    def takes(self, note: ThreadNote) -> bool:
        """Return whether a thread is in this list."""
        return not note.deleted_at and note.archived == self.archived


def _place(one: tuple[str, float]) -> tuple[float, str]:
    return -one[1], one[0]
