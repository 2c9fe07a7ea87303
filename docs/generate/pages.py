"""Which documents are made, and by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs.generate import events_page, layers_page, settings_page

PAGES: Mapping[str, Callable[[], str]] = {
    "layers.md": layers_page.page,
    "events.md": events_page.page,
    "settings.md": settings_page.page,
}
