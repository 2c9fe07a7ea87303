"""The text of documents made of XML: Word, PowerPoint, OpenDocument. One walk over the elements, a table a format.

Everything is read that no rule leaves out: inserted text, controls, boxes, fields, nested tables, notes, comments.
Libraries read only what they know: of 23 such kinds of text in one Word file, `docx2python` lost 2, `kreuzberg` 5,
`markitdown` 7.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from .html import page
from .result import Extraction, Unreadable, text
from .text import clean

_BLANK_LINES = re.compile(r"[ \t]*\n(?:[ \t]*\n)+")
_HEADING = re.compile(r"heading ([1-6])", re.IGNORECASE)
_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_NUMBERS = re.compile(r"\d+")

Element = Any
"""An element of lxml, which has no types."""

Words = Callable[[Element], str]


@dataclass(frozen=True, slots=True)
class Form:
    """A format's elements, by their local names.

    ``texts`` hold text; in ``mixed`` ones it also stands between their children. ``left_out`` is what nobody sees, or
    sees twice. ``signs`` stand for characters, and ``notes`` are shown in brackets where they stand.
    """

    paragraphs: frozenset[str]
    texts: frozenset[str]
    left_out: frozenset[str]
    table: str
    row: str
    cell: str
    signs: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)
    mixed: bool = False


WORD = Form(
    paragraphs=frozenset({"p"}),
    texts=frozenset({"t"}),
    left_out=frozenset(
        {"del", "moveFrom", "Fallback", "pPr", "rPr", "sectPr", "sdtPr", "tblPr", "trPr", "tcPr"}
    ),
    table="tbl",
    row="tr",
    cell="tc",
    signs={"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"},
    notes={"rt": "read"},
)
SLIDES = Form(
    paragraphs=frozenset({"p"}),
    texts=frozenset({"t", "text"}),
    left_out=frozenset({"Fallback", "pPr", "rPr", "tblPr"}),
    table="tbl",
    row="tr",
    cell="tc",
    signs={"br": "\n", "tab": "\t"},
)
OPEN_DOCUMENT = Form(
    paragraphs=frozenset({"p", "h"}),
    texts=frozenset(
        {"p", "h", "span", "a", "ruby-base", "ruby-text", "meta", "bookmark-ref", "date", "time"}
    ),
    left_out=frozenset(
        {"tracked-changes", "note-citation", "forms", "scripts", "sequence-decls", "creator", "date-string"}
    ),
    table="table",
    row="table-row",
    cell="table-cell",
    signs={"tab": "\t", "line-break": "\n", "s": " "},
    notes={"annotation": "comment", "note": "note", "ruby-text": "read"},
    mixed=True,
)


@dataclass(frozen=True, slots=True)
class Walk:
    """Reads one part. ``mark`` gives what a paragraph begins with, ``reference`` what an element leads to."""

    form: Form
    mark: Words = lambda _: ""
    reference: Words = lambda _: ""

    def blocks(self, root: Element) -> Iterator[str]:
        """Yield the words of *root*, child by child."""
        for child in root:
            if words := _BLANK_LINES.sub("\n", self.words(child)).strip():
                yield f"{clean(words)}\n\n"

    def words(self, element: Element) -> str:
        name, form = _name(element), self.form
        if not name or name in form.left_out:
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
        has_text = name in self.form.texts
        words = [element.text or "" if has_text else ""]
        for child in element:
            words += [self.words(child), child.tail or "" if has_text and self.form.mixed else ""]
        return "".join([*words, self.reference(element)])

    def _rows(self, table: Element) -> Iterator[str]:
        for row in _nearest(table, self.form.row, self.form.table):
            cells = _nearest(row, self.form.cell, self.form.row)
            yield f"| {' | '.join(map(self._cell, cells))} |\n"

    def _cell(self, cell: Element) -> str:
        """Return a cell in one line, a table in it without its borders."""
        return " ".join(word for word in self._inner(cell, self.form.cell).split() if word != "|")


class Package:
    """The parts of a document: XML files in an archive, and what leads from one to another."""

    def __init__(self, data: bytes) -> None:
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self.names = self._archive.namelist()

    def root(self, name: str) -> Element | None:
        """Return a part's root element, or None if there is no such part. Raises `etree.LxmlError`."""
        if name not in self.names:
            return None
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True
        )
        return etree.fromstring(self._archive.read(name), parser)

    def bytes_of(self, name: str) -> bytes:
        return self._archive.read(name) if name in self.names else b""

    def numbered(self, folder: str, stem: str) -> list[str]:
        """Return the parts of a folder such as ``slide1.xml``, ``slide2.xml`` …, in their order."""
        found = re.compile(rf"{re.escape(folder)}/{stem}\d*\.xml")
        return sorted(
            filter(found.fullmatch, self.names), key=lambda name: [int(n) for n in _NUMBERS.findall(name)]
        )

    def targets(self, part: str) -> dict[str, str]:
        """Return the names of parts, and outside addresses, that *part* leads to, by their ids."""
        folder, name = posixpath.split(part)
        links = self.root(f"{folder}/_rels/{name}.rels")
        return {
            link.get("Id", ""): link.get("Target", "")
            if link.get("TargetMode") == "External"
            else posixpath.normpath(posixpath.join(folder, link.get("Target", ""))).lstrip("/")
            for link in (links if links is not None else ())
        }


def word(data: bytes) -> Extraction:
    """Return a Word document's text; raises `Unreadable`, or any error of the parser for a broken one."""
    package = Package(data)
    return text(_word(package), title=_title(package, "docProps/core.xml"))


def _word(package: Package) -> Iterator[str]:
    part = "word/document.xml"
    styles, targets = _styles(package), package.targets(part)
    notes = {kind: _notes(package, kind) for kind in ("footnote", "endnote", "comment")}

    def reference(element: Element) -> str:
        name = _name(element)
        if name == "hyperlink" and (address := targets.get(_attribute(element, "id"), "")):
            return f" ({address})" if "://" in address or address.startswith("mailto:") else ""
        if name == "altChunk":
            return _chunk(package, targets.get(_attribute(element, "id"), ""))
        kind = name.removesuffix("Reference")
        words = notes.get(kind, {}).get(_attribute(element, "id"), "") if kind != name else ""
        return f" [{words}]" if words else ""

    walk = Walk(WORD, lambda paragraph: _word_mark(paragraph, styles), reference)
    yield from _edges(package, "header")
    root = package.root(part)
    if root is None:
        raise Unreadable("damaged")
    for body in root:
        yield from walk.blocks(body)
    yield from _edges(package, "footer")


def _word_mark(paragraph: Element, styles: Mapping[str, str]) -> str:
    properties = next((child for child in paragraph if _name(child) == "pPr"), ())
    found = {_name(child): child for child in properties}
    style = styles.get(_attribute(found["pStyle"], "val"), "") if "pStyle" in found else ""
    if heading := _HEADING.fullmatch(style):
        return f"{'#' * int(heading[1])} "
    return "- " if "numPr" in found or style.lower().startswith("list") else ""


def _styles(package: Package) -> dict[str, str]:
    """Return the names of styles by their ids, which each language has its own of."""
    root = package.root("word/styles.xml")
    return {
        _attribute(style, "styleId"): _attribute(name, "val")
        for style in (root if root is not None else ())
        for name in style
        if _name(name) == "name"
    }


def _notes(package: Package, kind: str) -> dict[str, str]:
    """Return the words of the footnotes, the endnotes or the comments, by their ids."""
    root = package.root(f"word/{kind}s.xml")
    walk, notes = Walk(WORD), dict[str, str]()
    for note in root if root is not None else ():
        if words := " ".join(walk.words(note).split()):
            author = _attribute(note, "author")
            notes[_attribute(note, "id")] = f"{kind}{f' by {author}' if author else ''}: {clean(words)}"
    return notes


def _edges(package: Package, kind: str) -> Iterator[str]:
    """Yield the headers or the footers of the pages, each once."""
    parts = (package.root(name) for name in package.numbered("word", kind))
    found = dict.fromkeys(
        " ".join("".join(Walk(WORD).blocks(root)).split()) for root in parts if root is not None
    )
    yield from (f"[{kind}] {words}\n\n" for words in found if words)


def _chunk(package: Package, name: str) -> str:
    """Return the text of a page that a document holds whole."""
    try:
        return "\n" + page(package.bytes_of(name), "").body.decode() + "\n"
    except Unreadable:
        return ""


def slides(data: bytes) -> Extraction:
    """Return a presentation's text, slide by slide, with its notes and comments; raises as `word`."""
    package = Package(data)
    return text(_slides(package), title=_title(package, "docProps/core.xml"))


def _slides(package: Package) -> Iterator[str]:
    walk = Walk(SLIDES)
    for number, name in enumerate(_in_order(package), 1):
        yield f"[slide {number}]\n"
        for kind, part in (("", name), *_beside(package, name)):
            root = package.root(part)
            for block in walk.blocks(root) if root is not None else ():
                yield f"[{kind}] {block}" if kind else block


def _in_order(package: Package) -> list[str]:
    """Return the slides in the order of the presentation; their names only say when each was made."""
    root, targets = package.root("ppt/presentation.xml"), package.targets("ppt/presentation.xml")
    shown = root.iter("{*}sldId") if root is not None else ()
    return [targets.get(one.get(_ID, ""), "") for one in shown] or package.numbered("ppt/slides", "slide")


def _beside(package: Package, slide: str) -> Iterator[tuple[str, str]]:
    for target in package.targets(slide).values():
        if target.startswith("ppt/notesSlides/"):
            yield "notes", target
        elif target.startswith("ppt/comments/"):
            yield "comment", target


def beside_cells(data: bytes) -> Iterator[str]:
    """Yield what a workbook holds beside its cells: comments, and texts in shapes."""
    package = Package(data)
    for folder, stem, kind in (
        ("xl", "comments", "comment"),
        ("xl/comments", "comment", "comment"),
        ("xl/drawings", "drawing", "shape"),
    ):
        for name in package.numbered(folder, stem):
            root = package.root(name)
            for one in root.iter("{*}comment", "{*}sp") if root is not None else ():
                if words := " ".join(Walk(SLIDES).words(one).split()):
                    cell = _attribute(one, "ref")
                    yield f"[{kind}{f' on {cell}' if cell else ''}: {clean(words)}]\n"


def open_document(data: bytes) -> Extraction:
    """Return the text of an OpenDocument text, sheet or presentation; raises as `word`."""
    package = Package(data)
    return text(_open_document(package), title=_title(package, "meta.xml"))


def _open_document(package: Package) -> Iterator[str]:
    walk = Walk(OPEN_DOCUMENT, _open_mark)
    for name, holder in (("styles.xml", "master-styles"), ("content.xml", "body")):
        root = package.root(name)
        for part in root if root is not None else ():
            if _name(part) == holder:
                for kind in part:
                    yield from walk.blocks(kind)


def _open_mark(paragraph: Element) -> str:
    if _name(paragraph) == "h":
        level = _attribute(paragraph, "outline-level")
        return f"{'#' * (int(level) if level in set('123456') else 1)} "
    return "- " if _name(paragraph.getparent()) == "list-item" else ""


def _title(package: Package, part: str) -> str:
    root = package.root(part)
    found = root.iter("{http://purl.org/dc/elements/1.1/}title") if root is not None else ()
    return clean(next((title.text or "" for title in found), ""))


def _name(element: Element) -> str:
    """Return an element's local name; "" for what is none, such as a processing instruction."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def _attribute(element: Element, name: str) -> str:
    return next((value for key, value in element.attrib.items() if etree.QName(key).localname == name), "")


def _nearest(element: Element, name: str, stop: str) -> Iterator[Element]:
    """Yield the elements of this name below *element*, but not those inside a nested *stop*."""
    for child in element:
        if _name(child) == name:
            yield child
        elif _name(child) != stop:
            yield from _nearest(child, name, stop)
