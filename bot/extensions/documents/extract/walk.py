"""One walk over the elements of a document made of XML, with a table for each format.

Everything is read that no rule leaves out: inserted text, controls, boxes, fields, nested tables, notes, comments.
Libraries read only what they know: of 23 such kinds of text in one Word file, `docx2python` lost 2, `kreuzberg` 5,
`markitdown` 7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from .package import Element, name_of
from .text import clean

_BLANK_LINES = re.compile(r"[ \t]*\n(?:[ \t]*\n)+")

Words = Callable[[Element], str]


@dataclass(frozen=True, slots=True)
class Form:
    """A format's elements, by their local names.

    ``texts`` hold text, all elements if it is None; if they are ``mixed`` it also stands between their children.
    ``left_out`` is what nobody sees, or sees twice. ``signs`` stand for characters, and ``notes`` are shown in
    brackets where they stand.
    """

    paragraphs: frozenset[str]
    texts: frozenset[str] | None
    left_out: frozenset[str]
    table: str
    row: str
    cells: frozenset[str]
    signs: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)
    mixed: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """Reads one part. ``mark`` gives what a paragraph begins with, ``reference`` what an element leads to.

    ``columns`` gives what a cell with these words shows in each of its columns, ``rows`` how often a row is there.
    ``hidden`` tells what the document itself does not show.
    """

    form: Form
    mark: Words = lambda _: ""
    reference: Words = lambda _: ""
    columns: Callable[[Element, str], list[str]] = lambda _, words: [words]
    rows: Callable[[Element], int] = lambda _: 1
    hidden: Callable[[Element], bool] = lambda _: False

    def blocks(self, root: Element) -> Iterator[str]:
        """Yield the words of *root*, child by child."""
        for child in root:
            if words := _BLANK_LINES.sub("\n", self.words(child)).strip():
                yield f"{clean(words)}\n\n"

    def line(self, root: Element) -> str:
        """Return the words of *root* in one line."""
        return clean(" ".join(self.words(root).split()))

    def words(self, element: Element) -> str:
        name, form = name_of(element), self.form
        if not name or name in form.left_out or self.hidden(element):
            return ""
        if sign := form.signs.get(name):
            return sign
        if name == form.table:
            return f"\n{''.join(self._rows(element))}"
        inner = self._inner(element, name)
        if kind := form.notes.get(name):
            return f" [{kind}: {' '.join(inner.split())}]" if inner.strip() else ""
        if name in form.paragraphs and inner.strip():
            return f"\n{self.mark(element)}{inner.strip()}\n"
        return inner

    def _inner(self, element: Element, name: str) -> str:
        has_text = self.form.texts is None or name in self.form.texts
        words = [element.text or "" if has_text else ""]
        for child in element:
            words += [self.words(child), child.tail or "" if has_text and self.form.mixed else ""]
        return "".join([*words, self.reference(element)])

    def _rows(self, table: Element) -> Iterator[str]:
        for row in _nearest(table, frozenset({self.form.row}), self.form.table):
            cells = [
                words
                for cell in _nearest(row, self.form.cells, self.form.row)
                for words in self.columns(cell, self._cell(cell))
            ]
            if any(cells):
                yield f"| {' | '.join(cells)} |\n" * self.rows(row)

    def _cell(self, cell: Element) -> str:
        """Return a cell in one line, a table in it without its borders."""
        return " ".join(word for word in self._inner(cell, name_of(cell)).split() if word != "|")


def _nearest(element: Element, names: frozenset[str], stop: str) -> Iterator[Element]:
    """Yield the elements of these names below *element*, but not those inside a nested *stop*."""
    for child in element:
        if name_of(child) in names:
            yield child
        elif name_of(child) != stop:
            yield from _nearest(child, names, stop)
