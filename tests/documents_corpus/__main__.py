"""``python -m tests.documents_corpus DIR``; it fails if a word is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from tests.documents_corpus.check import check, listed


def main(folder: str) -> int:
    report = anyio.run(check, Path(folder))
    for kind, files in sorted(report.files.items()):
        print(f"{kind}: {files} files, {report.words[kind]} words")
    for source, words in report.missing.items():
        print(f"{source} lacks: {' '.join(words)}")
    lost = sum(map(len, report.missing.values()))
    print(
        f"{report.files.total()} of {len(list(listed()))} files are there; {lost} of {report.words.total()} words are missing"
    )
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
