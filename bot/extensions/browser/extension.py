"""The tool `browser`: pages in Chromium, behind the same guard as `web_fetch`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from bot.host.extension import Extension, Host, Running
from threads.background import background_tasks

if TYPE_CHECKING:
    from bot.host.checks import Check, Context

log = logging.getLogger(__name__)


@asynccontextmanager
async def _open(host: Host) -> AsyncIterator[Running | None]:
    if "browser" not in host.enabled:
        yield None
        return
    from bot.extensions.browser.launch import launch_chromium, unavailable  # noqa: PLC0415 - an extra
    from bot.extensions.browser.session import SharedBrowser  # noqa: PLC0415
    from bot.extensions.browser.tool import Browser  # noqa: PLC0415

    missing, degradation = await host.offload(unavailable), host.settings.degradation
    if missing:
        log.warning("tool.unavailable: %s", missing)
    pages = SharedBrowser(host.egress, partial(launch_chromium, host.work))
    browser = Browser(
        pages,
        host.egress,
        host.writer,
        host.web_fetch,
        missing,
        disable_browser=degradation.disable_browser_on_error,
        disable_screenshots=degradation.disable_screenshots_on_error,
    )
    async with background_tasks() as tasks:
        tasks.start_soon(pages.run)
        yield Running(tools={"browser": [browser]}, troubles=lambda: missing)


def _checks(context: Context) -> Sequence[Check]:
    from bot.config.scopes import enabled_anywhere  # noqa: PLC0415 - it loads the domain

    if "browser" not in enabled_anywhere(context.settings):
        return []
    from bot.extensions.browser.checks import check_browser  # noqa: PLC0415 - slow
    from bot.host.checks import Check  # noqa: PLC0415

    return [Check("browser", check_browser)]


extension = Extension(
    "browser",
    "reads pages that scripts build, in Chromium",
    page="docs/operations.md",
    open=_open,
    checks=_checks,
)
