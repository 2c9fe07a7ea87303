"""What lies in an archive: the names and sizes of its files; and books, which are archives of pages."""

from __future__ import annotations

import io
import posixpath
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace

from .html import page
from .office import Package
from .result import Extraction, Unreadable, text
from .text import clean

MOST_FILES = 5_000


def zip_list(data: bytes) -> Extraction:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = [(one.filename, one.file_size) for one in archive.infolist() if not one.is_dir()]
    return _listed(files)


def tar_list(data: bytes) -> Extraction:
    """Return the list of a tar archive; raises `Unreadable` for what is none."""
    files: list[tuple[str, int]] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for one in archive:
                if len(files) > MOST_FILES:
                    break
                if one.isfile():
                    files.append((one.name, one.size))
    except tarfile.ReadError:  # a single file that is packed
        raise Unreadable("unknown") from None
    return _listed(files)


def _listed(files: list[tuple[str, int]]) -> Extraction:
    lines = [f"{' '.join(clean(name).split())} ({size:,} bytes)\n" for name, size in files[:MOST_FILES]]
    if len(files) > MOST_FILES:
        lines.append("[more files are not listed]\n")
    return replace(text([f"An archive of {len(files):,} files:\n", *lines]), problem="listed")


def book(data: bytes) -> Extraction:
    """Return the text of an EPUB in the order of its pages; raises `Unreadable`, or any error of a parser."""
    package = Package(data)
    container = package.root("META-INF/container.xml")
    names = [
        one.get("full-path", "") for one in (container.iter("{*}rootfile") if container is not None else ())
    ]
    if not names:
        raise Unreadable("damaged")
    root, folder = package.root(names[0]), posixpath.dirname(names[0])
    if root is None:
        raise Unreadable("damaged")
    title = next((one.text or "" for one in root.iter("{http://purl.org/dc/elements/1.1/}title")), "")
    items = {one.get("id"): one.get("href", "") for one in root.iter("{*}item")}
    pages = [
        posixpath.normpath(posixpath.join(folder, items.get(one.get("idref"), "")))
        for one in root.iter("{*}itemref")
    ]
    return text(_pages(package, pages), title=clean(title))


def _pages(package: Package, names: list[str]) -> Iterator[str]:
    for name in names:
        try:
            yield page(package.bytes_of(name), "").body.decode() + "\n\n"
        except Unreadable:
            continue  # a cover, or a page of pictures
