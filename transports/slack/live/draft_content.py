"""The part of a live answer that is not sent yet, in order: pieces of text and task cards. Pure.

The text is safe, in pieces that fit into a message and end between words if possible. Of an unsent card only the
newest state is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from transports.slack.markdown.escape import SafeStream, safe
from transports.slack.markdown.links import Links
from transports.slack.markdown.open_fences import TableHold

MOST_SHOWN = 100_000
"""Characters of a turn that are shown live; the rest comes with the final text."""

MOST_CARDS = 50
CARD_BYTES = 100
"""Our estimate of the size of a card without its title; Slack does not document it."""


CardStatus = Literal["in_progress", "complete", "error"]


@dataclass(frozen=True, slots=True)
class Card:
    """The card of one tool: in progress, then complete or error, each at most once. ``title`` is safe to show."""

    id: str
    title: str
    status: CardStatus

    @property
    def chunk(self) -> dict[str, JsonValue]:
        return {"type": "task_update", "id": self.id, "title": self.title, "status": self.status}


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of one call."""

    pieces: Sequence[str | Card] = ()

    @property
    def text(self) -> str:
        return "".join(piece for piece in self.pieces if isinstance(piece, str))

    @property
    def has_cards(self) -> bool:
        return any(isinstance(piece, Card) for piece in self.pieces)

    @property
    def size(self) -> int:
        return sum(_size(piece) for piece in self.pieces)

    def arguments(self, before: str = "") -> dict[str, JsonValue]:
        """Return the arguments for a stream, with *before* in front."""
        if all(isinstance(piece, str) for piece in self.pieces):
            return {"markdown_text": before + self.text}
        chunks: list[JsonValue] = [
            {"type": "markdown_text", "text": piece} if isinstance(piece, str) else piece.chunk
            for piece in self.pieces
        ]
        return {"chunks": [{"type": "markdown_text", "text": before}, *chunks] if before else chunks}


class UnsentContent:
    def __init__(self, links: Links) -> None:
        self._links = links
        self._pieces: list[str | Card] = []
        self._length = 0
        self.restart()

    @property
    def has_text(self) -> bool:
        return any(isinstance(piece, str) and piece.strip() for piece in self._pieces)

    @property
    def has_cards(self) -> bool:
        return any(isinstance(piece, Card) for piece in self._pieces)

    def restart(self) -> None:
        """Drop unsent text, and the state of the text before it."""
        self._paused = False
        self._safe, self._tables = SafeStream(self._links), TableHold()
        self._pieces = [piece for piece in self._pieces if isinstance(piece, Card)]

    def add_text(self, delta: str) -> None:
        self._length += len(delta)
        if self._length > MOST_SHOWN or not (text := self._tables.feed(self._safe.feed(delta))):
            return
        self._add(f"\n\n{text}" if self._paused else text)
        self._paused = False

    def end_step(self) -> None:
        """Add the text that is held back: the step is complete."""
        self._add(self._tables.feed(self._safe.end()) + self._tables.end())
        self._safe, self._tables = SafeStream(self._links), TableHold()
        self._paused = self._paused or self._length > 0

    def add_card(self, card: Card) -> None:
        for place, piece in enumerate(self._pieces):
            if isinstance(piece, Card) and piece.id == card.id:
                self._pieces[place] = card
                return
        if sum(isinstance(piece, Card) for piece in self._pieces) < MOST_CARDS:
            self._pieces.append(card)

    def drop_cards(self) -> None:
        self._pieces = [piece for piece in self._pieces if isinstance(piece, str)]

    def take(self, room: int) -> tuple[Batch, bool]:
        """Take what fits into *room* bytes, and return it and whether that was all."""
        taken: list[str | Card] = []
        while self._pieces:
            piece = self._pieces[0]
            if (size := _size(piece)) > room:
                if isinstance(piece, str) and (at := cut(piece, room)):
                    taken.append(piece[:at])
                    self._pieces[0] = piece[at:]
                break
            taken.append(self._pieces.pop(0))
            room -= size
        return Batch(tuple(taken)), not self._pieces

    def put_back(self, batch: Batch) -> None:
        later, self._pieces = self._pieces, []
        newer = {piece.id for piece in later if isinstance(piece, Card)}
        for piece in (*batch.pieces, *later):
            if isinstance(piece, str):
                self._add(piece)
            elif piece in later or piece.id not in newer:
                self._pieces.append(piece)

    def _add(self, text: str) -> None:
        if self._pieces and isinstance(last := self._pieces[-1], str):
            self._pieces[-1] = last + text
        elif text:
            self._pieces.append(text)


def cut(text: str, room: int) -> int:
    """Return where to cut *text* so that the part before has at most *room* bytes; 0 if it has no border there."""
    head = text.encode("utf-8", "surrogatepass")[: max(room, 0)].decode("utf-8", "ignore")
    if len(head) == len(text):
        return len(text)
    for mark in ("\n\n", "\n", " ", "\u3002"):
        at = head.rfind(mark) + len(mark)
        if at > max(len(head) // 2, len(mark)):
            return at
    return head.rfind(" ") + 1


def _size(piece: str | Card) -> int:
    return utf8_size(piece) if isinstance(piece, str) else utf8_size(piece.title) + CARD_BYTES


def inert(text: str, links: Links) -> str:
    """Return *text* so that no link, mention or markup of it works."""
    return safe(text.replace("`", "'"), links)


def utf8_size(text: str) -> int:
    """Return how many bytes *text* has in UTF-8; a lone surrogate counts as three."""
    return len(text.encode("utf-8", "surrogatepass"))
