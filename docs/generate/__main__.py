"""Writes the generated pages. With ``--check`` it names those that are out of date and exits with 1."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generate import events_page, layers_page, servers_page, settings_page
from docs.generate.reading import page as reading_page

DOCS = Path(__file__).parents[1]
PAGES: Mapping[str, Callable[[], str]] = {
    "layers.md": layers_page.page,
    "events.md": events_page.page,
    "reading.md": reading_page.page,
    "servers.md": servers_page.page,
    "settings.md": settings_page.page,
}


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


if __name__ == "__main__":
    sys.exit(main())
