"""The system's Chromium, for tests of the page; a machine without one skips them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from shutil import which
from typing import Any

import anyio
import pytest

from bot.extensions.browser.launch import SYSTEM
from tests.transports.web.site import Site

PROGRAM = next(filter(None, map(which, ("chromium-headless-shell", *SYSTEM))), None)
"""The one without a window starts at two thirds of the cost."""

needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="this machine has no Chromium")
in_one_chromium = [needs_chromium, pytest.mark.usefixtures("one_chromium")]
"""Marks of a module whose tests share a Chromium, each in a profile of its own: to start one takes a second."""

SHARED = list[Any]()


@asynccontextmanager
async def started() -> AsyncIterator[Any]:
    """Return the Chromium that is shared, or start one."""
    if SHARED:
        yield SHARED[0]
        return
    from playwright.async_api import async_playwright  # noqa: PLC0415 - starts a process

    async with async_playwright() as playwright:
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=args)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def browsing(site: Site, *, person: str = "you", **context) -> AsyncIterator:
    """Open the page by a new link, and yield it. What its console says of errors is a fault of the test."""
    from playwright.async_api import expect  # noqa: PLC0415 - slow

    expect.set_options(timeout=15_000)
    faults: list[str] = []
    async with started() as browser:
        profile = await browser.new_context(**context)
        try:
            page = await profile.new_page()
            page.set_default_timeout(15_000)
            page.on("pageerror", lambda error: faults.append(str(error)))
            page.on(
                "console", lambda line: faults.append(line.text) if "Content Security" in line.text else None
            )
            page.on(
                "request",
                lambda one: None if one.url.startswith((site.url, "data:")) else faults.append(one.url),
            )
            await page.goto(f"{site.url}/enter#{site.link(person)}")
            await page.wait_for_selector("#text:not([readonly])")  # its script runs
            yield page
        finally:
            await profile.close()
    assert faults == []


HIDDEN = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => %s});"
CHANGED = "document.dispatchEvent(new Event('visibilitychange'))"


async def say(page, text: str) -> None:
    await page.fill("#text", text)
    await page.keyboard.press("Enter")


async def look_away(page, *, away: bool = True) -> None:
    """Hide the tab, or show it again, as far as its script can tell."""
    await page.evaluate(HIDDEN % str(away).lower() + CHANGED)


@dataclass
class Held:
    """Requests that wait: ``asked`` is set when one has come, and setting ``free`` lets all go on."""

    asked: anyio.Event = field(default_factory=anyio.Event)
    free: anyio.Event = field(default_factory=anyio.Event)


@asynccontextmanager
async def holding(page, path: str, fate=lambda route: route.continue_()) -> AsyncIterator[Held]:
    """Hold the requests of the page for *path* until they are freed, or the block ends; then they meet their *fate*."""
    held = Held()

    async def hold(route) -> None:
        held.asked.set()
        await held.free.wait()
        await fate(route)

    await page.route(path, hold)
    yield held
    held.free.set()
    await page.unroute_all(behavior="wait")
