"""The drawings in a document: charts and diagrams in words, pictures and embedded files by their names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from bot.extensions.documents.problems import LeftOut

from .package import Element, Package, attribute, below, name_of


class Drawings:
    """The drawings of one part. What they hold and is not read is added to *left_out*."""

    def __init__(self, package: Package, part: str, left_out: set[LeftOut]) -> None:
        self._package, self._left_out = package, left_out
        self.targets: Mapping[str, str] = package.targets(part)

    def words(self, element: Element) -> str:
        """Return what an element shows that is a drawing, "" for any other."""
        match name_of(element):
            case "pic" | "imagedata":
                self._left_out.add("pictures")
                return _named("picture", _description(element))
            case "OLEObject" | "oleObj":
                self._left_out.add("embedded")
                target = self.targets.get(attribute(element, "id"), "")
                return _named("embedded file", posixpath.basename(target) or attribute(element, "progId"))
            case "chart" if target := self.targets.get(attribute(element, "id"), ""):
                root = self._package.root(target)
                return _named("chart", "; ".join(_chart(root)) if root is not None else "")
            case "relIds" if target := self.targets.get(attribute(element, "dm"), ""):
                points = self._package.elements(target, "{*}pt")
                return _named("diagram", "; ".join(filter(None, map(_text, points))))
        return ""


def _named(kind: str, words: str) -> str:
    return f" [{kind}: {' '.join(words.split())}] " if words.strip() else f" [{kind}] "


def _description(picture: Element) -> str:
    """Return the words that stand for a picture where it cannot be seen."""
    if name_of(picture) == "imagedata":
        return attribute(picture, "title")
    around = next((one for one in picture.iterancestors() if name_of(one) in ("inline", "anchor")), picture)
    properties = below(around, "docPr") if around is not picture else below(picture, "cNvPr")
    return attribute(properties, "descr") if properties is not None else ""


def _chart(root: Element) -> Iterator[str]:
    """Yield the title, the names of the axes, and each series with its values."""
    yield from filter(None, map(_text, root.iter("{*}title")))
    for series in root.iter("{*}ser"):
        parts = {name_of(part): [value.text or "" for value in part.iter("{*}v")] for part in series}
        names = parts.get("cat") or parts.get("xVal") or []
        values = parts.get("val") or parts.get("yVal") or []
        names += [""] * (len(values) - len(names))
        shown = ", ".join(f"{name} {value}".strip() for name, value in zip(names, values, strict=False))
        yield f"{' '.join(parts.get('tx', []))}: {shown}".removeprefix(": ")


def _text(element: Element) -> str:
    return "".join(one.text or "" for one in element.iter("{*}t"))
