"""Write all of them, or with ``--check`` name those that are out of date and exit with 1."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.generate.pages import PAGES

DOCS = Path(__file__).parents[1]


def main() -> int:
    check, stale = "--check" in sys.argv[1:], []
    for name, make in PAGES.items():
        path, text = DOCS / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/{name} {'is out of date: make docs' if check else 'was written'}")
    return int(check and bool(stale))


sys.exit(main())
