"""Finds Chromium and starts it. Playwright is imported only for the start: that takes a third of a second."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from threads.store.disk import Offload

from .session import Engine, OnFailure

SYSTEM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

INSTALL = "The browser is not installed: pip install 'threadfast[browser]' and playwright install chromium."


def unavailable() -> str:
    """Return a sentence on why no browser can run here, or "". Blocking, and quick."""
    if importlib.util.find_spec("playwright") is None or not (has_own() or system_browser()):
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


@asynccontextmanager
async def launch_chromium(
    offload: Offload, port: int, on_failure: OnFailure, *, sandbox: bool = True
) -> AsyncIterator[Engine]:
    """Run Chromium for the block: Playwright's own, or the system's; its proxy is that port of loopback.

    Without *sandbox* it runs for root too, with nothing between a page and this machine: for tests.
    """
    chromium = await offload(importlib.import_module, "bot.extensions.browser.chromium")
    async with chromium.run_chromium(offload, port, on_failure, sandbox=sandbox) as engine:
        yield engine
