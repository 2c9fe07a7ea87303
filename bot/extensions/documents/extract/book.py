"""The text of an EPUB, page by page."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

from bot.extensions.documents.problems import LeftOut

from .html import page
from .package import Package, attribute
from .result import Extraction, Unreadable, text

_OBFUSCATED = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
"""How fonts are made useless outside of their book; nothing else is locked by it."""


def book(package: Package) -> Extraction:
    """Return the text of an EPUB in the order of its pages; raises `Unreadable`, or any error of a parser."""
    names = [one.get("full-path", "") for one in package.elements("META-INF/container.xml", "{*}rootfile")]
    root = package.root(names[0]) if names else None
    if root is None:
        raise Unreadable("damaged")
    methods = package.elements("META-INF/encryption.xml", "{*}EncryptionMethod")
    if any(attribute(one, "Algorithm") not in _OBFUSCATED for one in methods):
        raise Unreadable("password")
    folder = posixpath.dirname(names[0])
    items = {one.get("id"): unquote(one.get("href", "")) for one in root.iter("{*}item")}
    pages = [
        posixpath.normpath(posixpath.join(folder, items.get(one.get("idref"), "")))
        for one in root.iter("{*}itemref")
    ]
    left_out = set[LeftOut]()
    return text(_pages(package, pages, left_out), title=package.title(names[0]), left_out=left_out)


def _pages(package: Package, names: list[str], left_out: set[LeftOut]) -> Iterator[str]:
    for name in names:
        data = package.bytes_of(name)
        if b"<img" in data or b"<image" in data:
            left_out.add("pictures")
        if not data:
            left_out.add("pages")
            continue
        try:
            found = page(data, "")
        except Unreadable:
            continue  # a cover, or a page of pictures
        left_out.update(found.left_out)
        yield found.body.decode() + "\n\n"
