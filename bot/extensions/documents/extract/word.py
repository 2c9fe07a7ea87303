"""The text of a Word document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from bot.extensions.documents.problems import LeftOut

from .drawing import Drawings
from .numbering import Numbering
from .package import Element, Package, attribute, below, name_of
from .result import Extraction, Read, Unreadable, text
from .text import clean
from .walk import Form, Walk

WORD = Form(
    paragraphs=frozenset({"p"}),
    texts=frozenset({"t"}),
    left_out=frozenset(
        {"del", "moveFrom", "Fallback", "pPr", "rPr", "sectPr", "sdtPr", "tblPr", "trPr", "tcPr"}
    ),
    table="tbl",
    row="tr",
    cells=frozenset({"tc"}),
    signs={"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"},
    notes={"rt": "read"},
)

_HEADING = re.compile(r"heading ([1-6])", re.IGNORECASE)
_LINK = re.compile(r"\s*HYPERLINK\s+\"([^\"]+)\"", re.IGNORECASE)
_OFF = ("0", "false", "off")
_SYMBOLS = {
    "F0FC": "✓",
    "F0FE": "☑",
    "F0FD": "☒",
    "F0A8": "☐",
    "F06F": "☐",
    "F0B7": "•",
    "F0A7": "▪",
    "F0E0": "→",
}
"""Characters of the fonts Wingdings and Symbol that people put where letters do not do."""


def word(package: Package, part: str, read: Read) -> Extraction:
    """Return a Word document's text; raises `Unreadable`, or any error of the parser for a broken one."""
    left_out = set[LeftOut]()
    return text(
        _Word(package, part, read, left_out).parts(),
        title=package.title("docProps/core.xml"),
        left_out=left_out,
    )


class _Word:
    """One document. ``read`` reads the files that it holds whole."""

    def __init__(self, package: Package, part: str, read: Read, left_out: set[LeftOut]) -> None:
        self._package, self._part, self._read, self._left_out = package, part, read, left_out
        self._styles = dict(_styles(package, part))
        self._numbering = Numbering(package, part)
        self._notes: dict[str, dict[str, str]] = {}
        for kind in ("footnote", "endnote", "comment"):
            self._notes[kind] = dict(self._read_notes(kind))

    def parts(self) -> Iterator[str]:
        yield from self._edges("header")
        if (root := self._package.root(self._part)) is None:
            raise Unreadable("damaged")
        walk = self._walk(self._part)
        for body in root:
            yield from walk.blocks(body)
        yield from self._edges("footer")

    def _edges(self, kind: str) -> Iterator[str]:
        """Yield the headers or the footers of the pages, each once."""
        found = dict.fromkeys(
            " ".join("".join(self._walk(name).blocks(root)).split())
            for name in sorted(self._package.linked(self._part, kind))
            if (root := self._package.root(name)) is not None
        )
        yield from (f"[{kind}] {words}\n\n" for words in found if words)

    def _read_notes(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield the id and the words of each footnote, endnote or comment."""
        for part in self._package.linked(self._part, f"{kind}s"):
            walk = self._walk(part)
            for note in self._package.children(part):
                if words := walk.line(note):
                    author = attribute(note, "author")
                    yield attribute(note, "id"), f"{kind}{f' by {clean(author)}' if author else ''}: {words}"

    def _walk(self, part: str) -> Walk:
        reference = partial(self._reference, drawings=Drawings(self._package, part, self._left_out))
        return Walk(WORD, self._mark, reference, columns=_columns, hidden=_hidden)

    def _mark(self, paragraph: Element) -> str:
        properties = next((child for child in paragraph if name_of(child) == "pPr"), ())
        style = next((attribute(child, "val") for child in properties if name_of(child) == "pStyle"), "")
        number = self._numbering.next(properties, style)
        name = self._styles.get(style, "")
        if heading := _HEADING.fullmatch(name):
            return f"{'#' * int(heading[1])} {number if number != '- ' else ''}"
        return number or ("- " if name.lower().startswith("list") else "")

    def _reference(self, element: Element, drawings: Drawings) -> str:
        if (name := name_of(element)) == "hyperlink":
            return _address(drawings.targets.get(attribute(element, "id"), ""))
        if name == "altChunk":
            return self._chunk(drawings.targets.get(attribute(element, "id"), ""))
        kind = name.removesuffix("Reference")
        if kind in self._notes and kind != name:
            words = self._notes[kind].get(attribute(element, "id"), "")
            return f" [{words}]" if words else ""
        return _field(element, name) or drawings.words(element)

    def _chunk(self, name: str) -> str:
        """Return the text of a file that a document holds whole."""
        ending = f".{name.rpartition('.')[2].lower()}"
        try:
            chunk = self._read(self._package.bytes_of(name), "", ending)
        except Unreadable:
            self._left_out.add("embedded")
            return ""
        self._left_out.update(chunk.left_out)
        return f"\n{chunk.body.decode()}\n"


def _styles(package: Package, part: str) -> Iterator[tuple[str, str]]:
    """Yield the id of each style, which differs from language to language, and its name."""
    for styles in package.linked(part, "styles"):
        for style in package.children(styles):
            if (name := below(style, "name")) is not None:
                yield attribute(style, "styleId"), attribute(name, "val")


def _columns(cell: Element, words: str) -> list[str]:
    properties = next((child for child in cell if name_of(child) == "tcPr"), None)
    span = below(properties, "gridSpan") if properties is not None else None
    wide = min(int(attribute(span, "val") or 1), 100) if span is not None else 1
    return [words, *[""] * (wide - 1)]


def _hidden(element: Element) -> bool:
    """Return whether it is a run that Word does not show."""
    if name_of(element) != "r":
        return False
    properties = next((child for child in element if name_of(child) == "rPr"), ())
    return any(name_of(one) == "vanish" and attribute(one, "val") not in _OFF for one in properties)


def _field(element: Element, name: str) -> str:
    """Return what a field or a symbol shows that has no words of its own, and where a link leads."""
    match name:
        case "fldSimple" if link := _LINK.match(attribute(element, "instr")):
            return _address(link[1])
        case "instrText" if link := _LINK.match(element.text or ""):
            return f"{_address(link[1]).strip()} "  # its words follow
        case "sym":
            return _SYMBOLS.get(attribute(element, "char").upper(), "\ufffd")
        case "checkBox":
            return "☑ " if _checked(element) else "☐ "
        case "ddList":
            entries = [attribute(one, "val") for one in element if name_of(one) == "listEntry"]
            chosen = [attribute(one, "val") for one in element if name_of(one) in ("result", "default")]
            return entries[int(chosen[0]) if chosen else 0] if entries else ""
    return ""


def _checked(box: Element) -> bool:
    states = {name_of(one): attribute(one, "val") not in _OFF for one in box}
    return states.get("checked", states.get("default", False))


def _address(target: str) -> str:
    return f" ({clean(target)})" if "://" in target or target.startswith("mailto:") else ""
