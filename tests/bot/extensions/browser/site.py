"""The site that the browser's tests open, the names that lead to it or elsewhere, and a browser that runs."""

import os
from contextlib import asynccontextmanager
from functools import partial

import anyio

from bot.extensions.browser.launch import launch_chromium
from bot.extensions.browser.session import SharedBrowser
from bot.guards.egress import Egress
from tests.bot.tools import site
from threads.background import background_tasks

NAMES = {
    "other.test": ["93.184.216.35"],
    "inside.test": ["10.0.0.7"],
    "looped.test": ["127.0.0.1"],
    "halved.test": [site.PUBLIC, "169.254.169.254"],
    "missing.test": [],
}

CHROMIUM = partial(launch_chromium, anyio.to_thread.run_sync, sandbox=os.geteuid() != 0)

page = partial(site.page, kind="text/html; charset=utf-8")
serving = partial(site.serving, names=NAMES)


@asynccontextmanager
async def running(egress: Egress, launch=CHROMIUM):
    """Run a `SharedBrowser` for the block."""
    browser = SharedBrowser(egress, launch)
    async with background_tasks() as tasks:
        tasks.start_soon(browser.run)
        yield browser
