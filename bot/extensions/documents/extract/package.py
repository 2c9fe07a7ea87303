"""The parts of an office document: XML files in an archive, and what leads from one to another."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from lxml import etree  # type: ignore[import-untyped]

from .text import clean

Element = Any
"""An element of lxml, which has no types."""

_NUMBERS = re.compile(r"\d+")


class Package:
    """An archive of parts. A part's name has no slash at its beginning."""

    def __init__(self, data: bytes) -> None:
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self.names = frozenset(self._archive.namelist())

    def root(self, name: str) -> Element | None:
        """Return a part's root element, or None if there is no such part. Raises `etree.LxmlError`."""
        return parsed(self._archive.read(name)) if name in self.names else None

    def elements(self, name: str, tag: str) -> Iterator[Element]:
        """Yield the elements of a part with this tag, none if there is no such part. Raises `etree.LxmlError`."""
        root = self.root(name)
        yield from root.iter(tag) if root is not None else ()

    def children(self, name: str) -> Iterator[Element]:
        """Yield the children of a part's root, none if there is no such part. Raises `etree.LxmlError`."""
        root = self.root(name)
        yield from root if root is not None else ()

    def bytes_of(self, name: str) -> bytes:
        return self._archive.read(name) if name in self.names else b""

    def numbered(self, folder: str, stem: str) -> list[str]:
        """Return the parts of a folder such as ``slide1.xml``, ``slide2.xml`` …, in their order."""
        found = re.compile(rf"{re.escape(folder)}/{stem}\d*\.xml")
        return sorted(
            filter(found.fullmatch, self.names), key=lambda name: [int(n) for n in _NUMBERS.findall(name)]
        )

    def links(self, part: str) -> Iterator[tuple[str, str, str]]:
        """Yield the id, the kind and the target of each link of *part*: a part's name or an outside address.

        A blank *part* is the whole document.
        """
        folder, name = posixpath.split(part)
        for link in self.children(posixpath.join(folder, f"_rels/{name}.rels")):
            target = link.get("Target", "")
            if link.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join(folder, unquote(target))).lstrip("/")
            yield link.get("Id", ""), posixpath.basename(link.get("Type", "")), target

    def targets(self, part: str) -> dict[str, str]:
        """Return the targets of the links of *part*, by their ids."""
        return {link: target for link, _, target in self.links(part)}

    def linked(self, part: str, *kinds: str) -> list[str]:
        """Return the targets of the links of *part* that are of these kinds."""
        return [target for _, kind, target in self.links(part) if kind in kinds]

    def title(self, part: str) -> str:
        found = self.elements(part, "{http://purl.org/dc/elements/1.1/}title")
        return clean(next((title.text or "" for title in found), ""))


def parsed(data: bytes) -> Element:
    """Return the root of an XML file, which loads nothing and defines nothing. Raises `etree.LxmlError`."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True)
    return etree.fromstring(data, parser)


def name_of(element: Element) -> str:
    """Return an element's local name; "" for what is none, such as a processing instruction."""
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def attribute(element: Element, name: str) -> str:
    """Return the attribute of this local name, "" if there is none; one with a namespace goes first."""
    found = [(key, value) for key, value in element.attrib.items() if etree.QName(key).localname == name]
    return max(found, default=("", ""))[1]


def below(element: Element, name: str) -> Element | None:
    """Return the first element of this local name below *element*."""
    return next((one for one in element.iter() if name_of(one) == name), None)
