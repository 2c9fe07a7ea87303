"""The text of a PowerPoint presentation, slide by slide, with its notes and comments."""

from __future__ import annotations

from collections.abc import Iterator

from bot.extensions.documents.problems import LeftOut

from .drawing import Drawings
from .package import Element, Package, attribute, name_of
from .result import Extraction, text
from .text import clean
from .walk import Form, Walk

SLIDES = Form(
    paragraphs=frozenset({"p"}),
    texts=frozenset({"t", "text"}),
    left_out=frozenset({"Fallback", "pPr", "rPr", "tblPr"}),
    table="tbl",
    row="tr",
    cells=frozenset({"tc"}),
    signs={"br": "\n", "tab": "\t"},
)

_BESIDE = {"notesSlide": "notes", "comments": "comment"}
"""What goes with a slide, by the kind of link."""


def slides(package: Package, part: str) -> Extraction:
    """Return a presentation's text; raises `Unreadable`, or any error of the parser for a broken one."""
    left_out = set[LeftOut]()
    return text(_slides(package, part, left_out), title=package.title("docProps/core.xml"), left_out=left_out)


def _slides(package: Package, part: str, left_out: set[LeftOut]) -> Iterator[str]:
    for number, name in enumerate(_in_order(package, part), 1):
        if (root := package.root(name)) is None:
            left_out.add("pages")
            continue
        yield f"[slide {number}{', hidden' if attribute(root, 'show') == '0' else ''}]\n"
        yield from drawn_text(package, name, left_out).blocks(root)
        for _, link, target in package.links(name):
            kind = _BESIDE.get(link, "")
            beside = package.root(target) if kind else None
            for block in drawn_text(package, target, left_out).blocks(beside) if beside is not None else ():
                yield f"[{kind}] {block}"


def _in_order(package: Package, part: str) -> list[str]:
    """Return the slides in the order of the presentation; their names only say when each was made."""
    targets, shown = package.targets(part), package.elements(part, "{*}sldId")
    return [targets.get(attribute(one, "id"), "") for one in shown] or package.numbered("ppt/slides", "slide")


def drawn_text(package: Package, part: str, left_out: set[LeftOut]) -> Walk:
    """Return what reads the text in the shapes of *part*."""
    drawings = Drawings(package, part, left_out)

    def reference(element: Element) -> str:
        if name_of(element) != "r":
            return drawings.words(element)
        links = (one for one in element.iter("{*}hlinkClick"))
        addresses = (drawings.targets.get(attribute(link, "id"), "") for link in links)
        return "".join(f" ({clean(address)})" for address in addresses if ":" in address)

    return Walk(SLIDES, reference=reference)
