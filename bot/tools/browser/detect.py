"""Whether there is a browser here, and which. Nothing is started, and Playwright is not imported."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

SYSTEM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

INSTALL = "The browser is not installed: pip install 'threadfast[browser]' and playwright install chromium."


def unavailable(executable: Path | None = None) -> str:
    """Return a sentence on why no browser can run here, or nothing. Blocking, and quick."""
    if importlib.util.find_spec("playwright") is None:
        return INSTALL
    if executable is not None and not os.access(executable, os.X_OK):
        return "The browser that the settings name is no program that can be run."
    if executable is None and not has_own() and system_browser() is None:
        return INSTALL
    if os.geteuid() == 0:
        return "The browser is off: its sandbox does not hold for root. Run the bot as an ordinary user."
    return ""


def system_browser() -> Path | None:
    """Return the Chromium or Chrome that the system has."""
    return next((Path(found) for name in SYSTEM if (found := shutil.which(name))), None)


def has_own() -> bool:
    """Return whether Playwright has installed a Chromium of its own, where its documentation says it does."""
    given = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    places = (
        [given]
        if given
        else [f"{Path.home()}/.cache/ms-playwright", f"{Path.home()}/Library/Caches/ms-playwright"]
    )
    return any(any(Path(place).glob("chromium-[0-9]*")) for place in places)
