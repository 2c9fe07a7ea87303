"""Reads the files that are there through the child that reads all files, and looks for their words."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from bot.extensions.documents.reader import Reader

TABLE = Path(__file__).parent / "files.tsv"


@dataclass(frozen=True)
class Listed:
    kind: str
    source: str
    sha256: str
    words: tuple[str, ...]


@dataclass
class Report:
    """How many files and words of each kind there were, and what is missing of them."""

    files: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    missing: dict[str, list[str]] = field(default_factory=dict)


def listed() -> Iterator[Listed]:
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        kind, source, digest, words = line.split("\t")
        yield Listed(kind, source, digest, tuple(words.split(" ")))


def found_below(folder: Path) -> Mapping[str, Path]:
    """Return the files below *folder* by their SHA-256."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in files}


async def check(folder: Path) -> Report:
    """Read the files of the table that are below *folder*."""
    report, places = Report(), await anyio.to_thread.run_sync(found_below, folder)
    documents = Reader(anyio.to_thread.run_sync)
    for one in listed():
        if place := places.get(one.sha256):
            name = one.source.rpartition("/")[2]
            text = "".join((await documents.text_of(place, "", name)).text.split())
            missing = [word for word in one.words if word not in text]
            report.files[one.kind] += 1
            report.words[one.kind] += len(one.words)
            if missing:
                report.missing[one.source] = missing
    return report
