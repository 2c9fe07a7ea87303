"""Which documents are made, and by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from deploy.generate import architecture_page, events_page, settings_page

PAGES: Mapping[str, Callable[[], str]] = {
    "architecture.md": architecture_page.page,
    "events.md": events_page.page,
    "settings.md": settings_page.page,
}
