"""Checks the browser for `threadfast doctor`."""

from __future__ import annotations

from bot.extensions.browser.launch import unavailable
from bot.host.checks import Context, Findings
from transports.shared.checks import Finding


async def check_browser(context: Context) -> Findings:
    if not (why := await context.offload(unavailable)):
        yield Finding("browser", "ok", "Chromium is installed")
        return
    meaning = "Pages are read without a browser, so pages built by scripts are empty."
    yield Finding("browser", "warn", why, meaning, "Fix this, or take browser out of tools.enabled.")
