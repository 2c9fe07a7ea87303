"""The text of an OpenDocument text, sheet or presentation."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

from bot.extensions.documents.problems import LeftOut

from .package import Element, Package, attribute, below, name_of, parsed
from .result import Extraction, Unreadable, text
from .text import clean
from .walk import Form, Walk

_UNSEEN = (
    "tracked-changes", "note-citation", "forms", "scripts", "sequence-decls", "creator", "date-string", "binary-data",
    "event-listeners", "title", "desc", "table-source", "dde-source", "settings",
)  # fmt: skip

OPEN_DOCUMENT = Form(
    paragraphs=frozenset({"p", "h"}),
    texts=None,
    left_out=frozenset(_UNSEEN),
    table="table",
    row="table-row",
    cells=frozenset({"table-cell", "covered-table-cell"}),
    signs={"tab": "\t", "line-break": "\n"},
    notes={"annotation": "comment", "note": "note", "ruby-text": "read"},
    mixed=True,
)

_MOST_COLUMNS, _MOST_ROWS = 200, 1_000
"""Of those that one element stands for."""


def open_document(package: Package) -> Extraction:
    """Return a document's text; raises `Unreadable`, or any error of the parser for a broken one."""
    if b"encryption-data" in package.bytes_of("META-INF/manifest.xml"):
        raise Unreadable("password")
    roots = [package.root(name) for name in ("styles.xml", "content.xml")]
    left_out = set[LeftOut]()
    return text(_parts(roots, package.root, left_out), title=package.title("meta.xml"), left_out=left_out)


def flat_document(data: bytes) -> Extraction:
    """Return the text of an OpenDocument file that is one XML file; raises as `open_document`."""
    left_out = set[LeftOut]()
    return text(_parts([parsed(data)], lambda _: None, left_out), left_out=left_out)


def _parts(
    roots: list[Element | None], root_of: Callable[[str], Element | None], left_out: set[LeftOut]
) -> Iterator[str]:
    if roots[-1] is None:
        raise Unreadable("damaged")
    walk = _walk(root_of, left_out)
    edges = {"header": dict[str, None](), "footer": dict[str, None]()}
    for root in roots:
        for master in root.iter("{*}master-page") if root is not None else ():
            for edge in master:
                kind = name_of(edge).partition("-")[0]  # also of the first page, and of the left ones
                if kind in edges:
                    edges[kind][walk.line(edge)] = None
    yield from (f"[header] {words}\n\n" for words in edges["header"] if words)
    body = below(roots[-1], "body")
    for kind in body if body is not None else ():
        if name_of(kind) == "presentation":
            yield from _slides(kind, walk)
        elif name_of(kind) == "spreadsheet":
            yield from _sheets(kind, walk)
        else:
            yield from walk.blocks(kind)
    yield from (f"[footer] {words}\n\n" for words in edges["footer"] if words)


def _slides(presentation: Element, walk: Walk) -> Iterator[str]:
    pages = (one for one in presentation if name_of(one) == "page")
    for number, page in enumerate(pages, 1):
        yield f"[slide {number}]\n"
        for block in page:
            mark = "[notes] " if name_of(block) == "notes" else ""
            yield from (f"{mark}{words}" for words in walk.blocks([block]))


def _sheets(spreadsheet: Element, walk: Walk) -> Iterator[str]:
    for sheet in spreadsheet:
        if name_of(sheet) == "table":
            yield f"## {' '.join(clean(attribute(sheet, 'name')).split())}\n"
        yield from walk.blocks([sheet])


def _walk(root_of: Callable[[str], Element | None], left_out: set[LeftOut]) -> Walk:
    def reference(element: Element) -> str:
        match name_of(element):
            case "s":
                return " " * min(int(attribute(element, "c") or 1), 100)
            case "a" if ":" in (target := attribute(element, "href")):
                return f" ({clean(target)})"
            case "object":
                if (root := root_of(f"{posixpath.normpath(attribute(element, 'href'))}/content.xml")) is None:
                    left_out.add("embedded")
                return f" [object: {walk.line(root)}] " if root is not None else " [object] "
            case "image" if not _stands_for_object(element):
                left_out.add("pictures")
                words = [below(element.getparent(), name) for name in ("title", "desc")]
                named = " ".join(one.text for one in words if one is not None and one.text)
                return f" [picture{': ' if named else ''}{named}] "
        return ""

    walk = Walk(OPEN_DOCUMENT, _mark, reference, _columns, _rows)
    return walk


def _stands_for_object(image: Element) -> bool:
    """Return whether an image is only the look of the object beside it."""
    return any(name_of(one) in ("object", "object-ole") for one in image.getparent())


def _mark(paragraph: Element) -> str:
    if name_of(paragraph) == "h":
        level = attribute(paragraph, "outline-level")
        return f"{'#' * (int(level) if level in set('123456') else 1)} "
    return "- " if name_of(paragraph.getparent()) == "list-item" else ""


def _columns(cell: Element, words: str) -> list[str]:
    """Return the words in each of the columns that a cell stands for: its formula or value if it has no words."""
    if not words:
        words = attribute(cell, "value") or attribute(cell, "formula").removeprefix("of:")
    many = min(int(attribute(cell, "number-columns-repeated") or 1), _MOST_COLUMNS)
    return [] if cell.getnext() is None and not words else [words] * many


def _rows(row: Element) -> int:
    return min(int(attribute(row, "number-rows-repeated") or 1), _MOST_ROWS)
