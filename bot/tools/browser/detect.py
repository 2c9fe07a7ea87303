"""Finds out whether there is a browser, and which. It starts nothing and does not import Playwright."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

SYSTEM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

INSTALL = "The browser is not installed: pip install 'threadfast[browser]' and playwright install chromium."


def unavailable(executable: Path | None = None) -> str:
    """Return a sentence on why no browser can run here, or "". Blocking, and quick."""
    if importlib.util.find_spec("playwright") is None:
        return INSTALL
    if executable is not None and not os.access(executable, os.X_OK):
        return "The browser in the settings is not a program that can be run."
    if executable is None and not has_own() and system_browser() is None:
        return INSTALL
    if os.geteuid() == 0:
        return "The browser is off: its sandbox does not hold for root. Run the bot as an ordinary user."
    return ""


def system_browser() -> Path | None:
    """Return the system's Chromium or Chrome."""
    return next((Path(found) for name in SYSTEM if (found := shutil.which(name))), None)


def has_own() -> bool:
    """Return whether Playwright has installed its Chromium, in a folder that its documentation names."""
    usual = (f"{Path.home()}/.cache/ms-playwright", f"{Path.home()}/Library/Caches/ms-playwright")
    configured = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    folders = [configured] if configured else usual
    return any(any(Path(folder).glob("chromium-[0-9]*")) for folder in folders)
